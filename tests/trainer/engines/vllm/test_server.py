"""vLLM's server in a process of its own: tokens, weights in flight, and every way in which it may end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor
from vllm_helpers import EXACT, gaps, made_policy, prompts, running, shaken, weights

from trainer.config import ModelConfig, OverlapConfig
from trainer.engines.vllm.server import VllmServerEngine
from trainer.engines.vllm.supervise import others
from trainer.errors import EnvironmentFailedError
from trainer.models import Policy

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, ModelConfig]:
    """The harder of the two kinds of model, see `docs/vllm.md`; `test_local` has the other."""
    return made_policy(tmp_path_factory.mktemp("tied"), tie_word_embeddings=True)


@pytest.fixture(scope="module")
def policy(tied: tuple[Policy, ModelConfig]) -> Policy:
    return tied[0]


@pytest.fixture(scope="module")
def engine(tied: tuple[Policy, ModelConfig]) -> Iterator[VllmServerEngine]:
    with running(tied[0], "vllm-server", model=tied[1]) as engine:
        assert isinstance(engine, VllmServerEngine)
        yield engine


@pytest.fixture
def base(policy: Policy, engine: VllmServerEngine) -> dict[str, Tensor]:
    """The policy's own weights, which the engine has too."""
    engine.update_weights(weights(policy), 0)
    return weights(policy)


def test_logprobs_at_lag_0_are_the_learners(
    policy: Policy, engine: VllmServerEngine, base: dict[str, Tensor]
) -> None:
    rollouts = engine.generate(prompts(16), samples=8, seed=1)
    assert float(gaps(policy, base, rollouts).max()) < EXACT
    ragged = engine.generate(prompts(16, ragged=True), samples=4, seed=2)
    # Cut prompts are not what the policy was made for: there even the full forward is 1e-5 from float64.
    assert float(gaps(policy, base, ragged).max()) < 3 * EXACT
    assert bool((ragged.version[ragged.mask] == 0).all())


def test_same_seed_same_tokens_also_in_groups_larger_than_a_batch(
    engine: VllmServerEngine, base: dict[str, Tensor]
) -> None:
    first, again, other = (engine.generate(["4=", "57="], samples=300, seed=s) for s in (5, 5, 6))
    assert first.response.shape == (600, 9)
    assert torch.equal(first.response, again.response)
    assert not torch.equal(first.response, other.response)
    assert len({tuple(row) for row in first.response[:300].tolist()}) > 10


def test_logprobs_follow_each_of_several_pushes(
    policy: Policy, engine: VllmServerEngine, base: dict[str, Tensor]
) -> None:
    for version in (1, 2, 5):
        values = shaken(base, version)
        engine.update_weights(values, version)
        rollouts = engine.generate(prompts(16), samples=4, seed=version)
        assert float(gaps(policy, values, rollouts).max()) < EXACT
        assert float(gaps(policy, base, rollouts).max()) > 1e-2
        assert bool((rollouts.version[rollouts.mask] == version).all())


def test_responses_in_flight_continue_with_new_weights(
    policy: Policy, engine: VllmServerEngine, base: dict[str, Tensor]
) -> None:
    values = {0: base, 1: shaken(base, 1)}
    asked = iter([None, None, (values[1], 1)])
    rollouts = engine.generate(prompts(256), samples=8, seed=3, refresh=lambda: next(asked, None))
    mixed = (rollouts.version == 0).any(-1) & (rollouts.version == 1).any(-1)
    assert int(mixed.sum()) > 10
    for version, own in values.items():
        sampled = rollouts.version == version
        assert float(gaps(policy, own, rollouts)[sampled].max()) < EXACT
        assert float(gaps(policy, values[1 - version], rollouts)[sampled].max()) > 1e-2


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def shared_memory_of(pid: int) -> set[Path]:
    """Files in shared memory that a process has mapped, without those that are deleted already."""
    mapped = (line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    files = {Path(fields[5]) for fields in mapped if len(fields) == 6 and "/dev/shm/" in fields[5]}  # noqa: S108
    return {file for file in files if file.exists()}


@contextmanager
def stopped(engine: VllmServerEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All of the server hangs, goes on afterwards, and is not ended by the error in between."""
    monkeypatch.setattr(engine._process, "failed", EnvironmentFailedError)
    monkeypatch.setattr(engine._client, "_failed", EnvironmentFailedError)
    pids = others(engine._process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_server_that_hangs_is_not_waited_for_for_ever(
    engine: VllmServerEngine, base: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = engine._config.model_copy(update={"overlap": OverlapConfig(patience=0.5)})
    monkeypatch.setattr(engine, "_config", impatient)
    monkeypatch.setattr(engine._client, "_seconds", 0.5)
    with stopped(engine, monkeypatch):
        with pytest.raises(
            EnvironmentFailedError, match=r"finished no request within overlap\.patience = 0\.5 s"
        ):
            engine.generate(prompts(4), samples=2, seed=0)
        with pytest.raises(EnvironmentFailedError, match=r"/pause within vllm\.start_timeout = 0\.5 s"):
            engine.update_weights(base, 1)


def test_a_server_killed_while_it_writes_is_one_clear_error(
    engine: VllmServerEngine, base: dict[str, Tensor]
) -> None:
    """Comes last here: there is no server afterwards."""
    supervisor = engine._process.pid
    started = others(supervisor)
    assert len(started) >= 3  # the server, its engine and its worker
    server = next(pid for pid in started if parent_of(pid) == supervisor)
    shared = {file for pid in started for file in shared_memory_of(pid)}

    def kill() -> None:
        with suppress(ProcessLookupError):  # it is asked again until the death is noticed
            os.kill(server, signal.SIGKILL)

    start = time.monotonic()
    with pytest.raises(
        EnvironmentFailedError, match="the vLLM server died; when the cause is mended"
    ) as error:
        engine.generate(prompts(256), samples=8, seed=3, refresh=kill)
    assert time.monotonic() - start < 120
    for _ in range(50):
        if not others(supervisor):
            break
        time.sleep(0.1)
    assert others(supervisor) == {}
    assert shared
    assert not any(file.exists() for file in shared)
    assert not engine._process.folder.exists()
    engine.close()
    assert str(engine._process.log) in str(error.value)
    assert engine._process.log.exists()
    engine._process.log.unlink()
