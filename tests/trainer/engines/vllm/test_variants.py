"""vLLM in this process: other settings, other models, and what it leaves of the process."""

from __future__ import annotations

import copy
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vllm_helpers import EXACT, first_token_p_value, gaps, prompts, running, shaken, weights

from trainer.config import ModelConfig, TrainerConfig
from trainer.models import Policy, load_policy, save_policy

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


def tied_policy(folder: Path) -> tuple[Policy, ModelConfig]:
    """The shipped policy's shape with its output head tied to its embeddings, and end tokens of its own."""
    from transformers import AutoModelForCausalLM

    shipped = load_policy(ModelConfig(), device="cpu")
    settings = copy.deepcopy(shipped.model.config)
    settings.tie_word_embeddings = True
    torch.manual_seed(0)
    shipped.model = AutoModelForCausalLM.from_config(settings).float()
    # What must not leak into sampling: a temperature, a top-k and an end token more than the tokenizer has.
    shipped.model.generation_config.update(temperature=0.1, top_k=1, do_sample=True, eos_token_id=[3, 12])
    save_policy(shipped, folder)
    settings = ModelConfig(path=str(folder))
    return load_policy(settings, device="cpu"), settings


def test_a_tied_model_and_a_folder_with_sampling_defaults(tmp_path: Path) -> None:
    tied, settings = tied_policy(tmp_path)
    base = weights(tied)
    assert "lm_head.weight" not in base
    with running(tied, model=settings) as engine:
        for version in (0, 1, 2, 3):
            values = shaken(base, version, by=0.5) if version else base
            engine.update_weights(values, version)
            rollouts = engine.generate(prompts(32), samples=4, seed=version)
            assert float(gaps(tied, values, rollouts).max()) < EXACT
        assert bool(((rollouts.response == 3) & rollouts.mask)[:, :-1].any())


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
