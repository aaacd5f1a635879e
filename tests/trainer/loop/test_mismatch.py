"""Engine against learner for the same weights, and mu recomputed by the learner."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config import ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.engines import make_engine
from trainer.loop.clock import Stopwatch
from trainer.loop.logprobs import response_logprobs
from trainer.loop.mismatch import fresh_behaviour, micro_batches, mismatch, recompute_behaviour
from trainer.loop.rollouts import Rollouts
from trainer.loop.sampling import draw_rollouts
from trainer.loop.train import train
from trainer.models import Policy, load_policy
from trainer.tasks import load_task

FLOOR = 1e-5
"""Nats per token: engine and learner in float32."""


def config(probe_every: int = 4, **trainer: Any) -> RunConfig:
    settings = {"group_size": 4, "prompts_per_update": 3, "warmup": 4, **trainer}
    return RunConfig(
        trainer=TrainerConfig(**settings),
        probe=ProbeConfig(every=probe_every, prompts=16),
        task=TaskConfig(held_out=16),
        sync_interval=2,
        updates=8,
    )


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(config().model, device="cpu")


@pytest.fixture(scope="module")
def drawn(policy: Policy) -> Rollouts:
    run = config()
    engine = make_engine(policy, run)
    return draw_rollouts(engine, load_task(run.task), policy, run, first=0, updates=2, clock=Stopwatch())


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_mismatch_equals_plain_sums(policy: Policy, drawn: Rollouts) -> None:
    shift = torch.randn(drawn.behaviour.shape, generator=torch.Generator().manual_seed(0)) * 0.01
    poisoned = (drawn.behaviour + shift).where(drawn.mask, torch.tensor(float("nan")))
    found = mismatch(policy, replace(drawn, behaviour=poisoned), config().trainer)
    with torch.no_grad():
        logprobs = response_logprobs(policy.model, drawn, config().trainer)
    deltas = [
        [float(logprobs[i, t] - poisoned[i, t]) for t in range(drawn.mask.shape[1]) if drawn.mask[i, t]]
        for i in range(len(drawn))
    ]
    tokens = [abs(delta) for row in deltas for delta in row]
    assert found["mismatch_mean"] == pytest.approx(sum(tokens) / len(tokens), rel=1e-4)
    assert found["mismatch_max"] == pytest.approx(max(tokens), rel=1e-4)
    assert found["mismatch_log_ratio"] == pytest.approx(
        sum(abs(sum(row)) for row in deltas) / len(deltas), rel=1e-4
    )


def test_the_engine_is_within_the_floor(policy: Policy, drawn: Rollouts) -> None:
    found = mismatch(policy, drawn, config().trainer)
    assert 0 <= found["mismatch_mean"] <= found["mismatch_max"] < FLOOR


@pytest.mark.parametrize("micro", [None, 1, 2])
def test_recomputed_behaviour_is_what_the_learner_sees(
    policy: Policy, drawn: Rollouts, micro: int | None
) -> None:
    trainer = config(micro_batch_groups=micro).trainer
    own, fields = recompute_behaviour(policy, drawn, trainer)
    for start, stop in micro_batches(len(drawn), trainer):
        part = own.rows(start, stop)
        assert torch.equal(
            response_logprobs(policy.model, part, trainer)[part.mask].detach(), part.behaviour[part.mask]
        )
    assert fields == mismatch(policy, drawn, trainer)
    assert not own.behaviour[~own.mask].any()
    assert torch.equal(own.response, drawn.response)
    assert torch.equal(own.version, drawn.version)


def test_micro_batches_never_span_two_updates() -> None:
    trainer = config(micro_batch_groups=2).trainer
    assert list(micro_batches(24, trainer)) == [(0, 8), (8, 12), (12, 20), (20, 24)]
    assert list(micro_batches(24, config().trainer)) == [(0, 12), (12, 24)]


@pytest.mark.parametrize("micro", [None, 2])
def test_with_learner_the_ratios_at_lag_0_are_exactly_1(tmp_path: Path, micro: int | None) -> None:
    train(config(behaviour_logprobs="learner", micro_batch_groups=micro), tmp_path)
    fresh = [row for row in rows(tmp_path) if row["lag_max"] == 0]
    assert len(fresh) == 4
    assert {row["log_ratio_abs_mean"] for row in fresh} == {0.0}
    assert all(0 < row["mismatch_mean"] < FLOOR for row in fresh)
    assert all(row["log_ratio_abs_mean"] > 0 for row in rows(tmp_path) if row["lag_max"] > 0)


def test_with_engine_the_mismatch_is_the_log_ratio_at_lag_0(tmp_path: Path) -> None:
    train(config(), tmp_path)
    measured = {row["update"]: row for row in rows(tmp_path) if "mismatch_mean" in row}
    # S = 2, measured once in every probe.every = 4 updates.
    assert list(measured) == [0, 4]
    for row in measured.values():
        assert row["mismatch_log_ratio"] == pytest.approx(row["log_ratio_abs_mean"], abs=1e-9)
        assert row["mismatch_max"] < FLOOR


def test_mu_from_the_engine_stays_as_it_is(policy: Policy, drawn: Rollouts) -> None:
    kept, fields = fresh_behaviour(policy, drawn, config(), first=2, clock=Stopwatch())
    assert kept is drawn
    assert fields == {}
    assert fresh_behaviour(policy, drawn, config(1), first=2, clock=Stopwatch())[1] != {}
