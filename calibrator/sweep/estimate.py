"""What a study would need, before anything is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrator.study.config import StudyConfig
from calibrator.sweep.design import ProposedRun
from calibrator.sweep.questions import CONFIRMATION_TRIES
from calibrator.sweep.rounds import proposals
from trainer.config import RunConfig
from trainer.models import model_folder
from trainer.models.memory import MemoryEstimate, count_parameters, estimate_memory


@dataclass(frozen=True)
class Estimate:
    """Updates, tokens and bytes of a study. `most` counts every planned run at its full length."""

    first_round: list[ProposedRun]
    runs_at_most: int
    updates_at_most: int
    tokens_at_most: int
    """Response tokens generated, every response at its limit."""
    parameters: int
    memory: MemoryEstimate
    """Of one trial on a CPU."""


def estimate(config: StudyConfig) -> Estimate:
    """Exact for the first round, an upper bound for the rest. Raises ConfigError when the model is not usable."""
    first = [run for name in config.sweep.estimators for run in proposals(config, name, [])]
    later = config.sweep.round_size + (len(config.sweep.estimators) - 1) * max(
        1, config.sweep.round_size // 2
    )
    rounds = (config.sweep.rounds - 1) * later
    updates = sum(run.updates for run in first) + rounds * config.longest
    confirmations = CONFIRMATION_TRIES * config.sweep.confirmations
    updates += confirmations * config.advice.horizon
    if config.sweep.max_updates is not None:
        updates = min(updates, config.sweep.max_updates)
    trainer = config.trainer
    return Estimate(
        first_round=first,
        runs_at_most=len(first) + rounds + confirmations,
        updates_at_most=updates,
        tokens_at_most=updates * trainer.group_size * trainer.prompts_per_update * trainer.response_limit,
        parameters=count_parameters(model_folder(config.model)),
        memory=estimate_memory(longest_run(config)),
    )


def longest_run(config: StudyConfig) -> RunConfig:
    """The run of a study that takes most memory: the largest S, from which most responses are drawn together."""
    return config.run_config(
        estimator=config.trainer.estimator,
        sync_interval=max(config.sweep.sync_intervals),
        learning_rate=config.sweep.learning_rates[0],
        updates=config.advice.horizon,
        seed=0,
        evaluate=True,
    )


def total_updates(runs: Sequence[ProposedRun]) -> int:
    """Planned updates of `runs`."""
    return sum(run.updates for run in runs)
