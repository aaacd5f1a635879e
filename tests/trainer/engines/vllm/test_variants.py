"""vLLM in this process: other settings, other models, and what it leaves of the process."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vllm_helpers import (
    EXACT,
    first_token_p_value,
    gaps,
    made_policy,
    prompts,
    running,
    shaken,
    weights,
)

from trainer.config import TrainerConfig
from trainer.errors import ConfigError, NonFiniteError
from trainer.models import Policy

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def test_temperature_below_one(policy: Policy) -> None:
    """What is recorded is the tempered distribution, the one that was sampled from."""
    with running(policy, trainer=TrainerConfig(temperature=0.7)) as engine:
        rollouts = engine.generate(prompts(32), samples=8, seed=1)
        assert float(gaps(policy, weights(policy), rollouts, temperature=0.7).max()) < EXACT
        assert float(gaps(policy, weights(policy), rollouts, temperature=1.0).max()) > 1e-1
        assert first_token_p_value(policy, engine, temperature=0.7) > 1e-3


def test_bfloat16_is_near(policy: Policy) -> None:
    with running(policy, trainer=TrainerConfig(dtype="bfloat16")) as engine:
        rollouts = engine.generate(prompts(32), samples=4, seed=1)
    gap = gaps(policy, weights(policy), rollouts)[rollouts.mask]
    assert 1e-4 < float(gap.mean()) < 0.05


def test_a_tied_model_and_a_folder_with_sampling_defaults(tmp_path: Path) -> None:
    tied, settings = made_policy(tmp_path, tie_word_embeddings=True)
    base = weights(tied)
    assert "lm_head.weight" not in base
    with running(tied, model=settings) as engine:
        for version in (0, 1, 2, 3):
            values = shaken(base, version) if version else base
            engine.update_weights(values, version)
            rollouts = engine.generate(prompts(32), samples=4, seed=version)
            assert float(gaps(tied, values, rollouts).max()) < EXACT
        assert bool(((rollouts.response == 3) & rollouts.mask)[:, :-1].any())


def test_a_model_that_vllm_cannot_run_is_refused_at_the_start(tmp_path: Path) -> None:
    odd, settings = made_policy(tmp_path, head_dim=16)
    with (
        pytest.raises(ConfigError, match=r"(?s)engine = 'vllm' cannot run model\.path.*use engine = 'hf'"),
        running(odd, model=settings),
    ):
        pass
    with running(odd, "hf", model=settings) as engine:
        assert len(engine.generate(prompts(2), samples=2, seed=0)) == 4


def test_nothing_is_compiled(policy: Policy) -> None:
    """Even where torch was imported long before, as in a worker of a fork server: compiling takes half a minute."""
    from torch._dynamo.utils import counters

    counters.clear()
    with running(policy) as engine:
        engine.generate(prompts(4), samples=2, seed=0)
    assert not counters["frames"]
    assert not torch._dynamo.config.disable


def test_the_process_is_left_as_it_was(policy: Policy) -> None:
    """vLLM seeds the process, replaces `torch.set_num_threads` and fills the environment for its children."""

    def state() -> list[Any]:
        names = ("VLLM_ENABLE_V1_MULTIPROCESSING", "HF_HUB_OFFLINE", "LD_PRELOAD", "OMP_NUM_THREADS")
        variables = [os.environ.get(name) for name in names]
        return [*variables, torch.set_num_threads, torch.get_num_threads(), torch.get_default_dtype()]

    before = state()
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = (torch.rand(1).item(), np.random.rand(), random.random())  # noqa: S311
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    with running(policy):
        assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected  # noqa: S311
        assert state() == before
        assert torch.is_grad_enabled()
    assert state() == before


def test_logits_that_are_no_numbers_are_said_to_be_so(policy: Policy) -> None:
    """With an engine of its own: NaN stays behind in the blocks of its cache."""
    broken = {n: value * float("nan") if "norm" in n else value for n, value in weights(policy).items()}
    with running(policy) as engine:
        engine.update_weights(broken, 1)
        with pytest.raises(NonFiniteError, match="logits are not finite"):
            engine.generate(prompts(4), samples=2, seed=0)
