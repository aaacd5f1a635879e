"""Once in a run, groups larger than those that are learned from: what a larger G would see at the largest lag."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from trainer.algorithms.ratios import masked_sum
from trainer.config import RunConfig
from trainer.engines.protocol import Engine
from trainer.files import write_atomically
from trainer.loop.evaluation import draw, score, stream
from trainer.loop.mismatch import scored_logprobs
from trainer.models import Policy
from trainer.tasks import Task

PROMPTS = 8
LARGE_GROUPS = 3
"""Purpose of random numbers, beside those of `trainer.loop.evaluation`."""
FILE = "group-ratios-{update:06d}.safetensors"


def probed_update(config: RunConfig) -> int | None:
    """Last update of the cycle in the middle of the run, where the lag is S - 1; None without a probe or a cycle."""
    cycles = config.updates // config.sync_interval
    if not config.probe.group_size or cycles == 0:
        return None
    return ((cycles - 1) // 2 + 1) * config.sync_interval - 1


def group_probe(
    engine: Engine, policy: Policy, task: Task, config: RunConfig, folder: Path, *, update: int
) -> None:
    """Draw PROMPTS groups of `probe.group_size` from the behaviour weights, and record their ratios and rewards.

    Columns as those of `ratios-*.safetensors`. Nothing is learned from these trajectories, and the run's own random
    numbers stay as they are.
    """
    rng = stream(config.seed, LARGE_GROUPS, update)
    size = config.probe.group_size
    examples = draw(task, policy, config, rng, PROMPTS)
    seed = int(rng.integers(2**62))
    drawn = engine.generate([example.prompt for example in examples], samples=size, seed=seed)
    rollouts = score(task, policy, drawn, examples, config)
    logprobs = scored_logprobs(policy, rollouts, config.trainer)
    ratios = masked_sum(logprobs - rollouts.behaviour, rollouts.mask)
    n = len(rollouts)
    columns = {
        "update": np.full(n, update, dtype=np.int32),
        "group": (np.arange(n) // size).astype(np.int32),
        "reward": rollouts.reward.cpu().numpy().astype(np.float32),
        "lag": (update - rollouts.oldest_version.cpu().numpy()).astype(np.int32),
        "log_ratio": ratios.cpu().numpy().astype(np.float32),
    }
    write_atomically(folder / FILE.format(update=update), save(columns))
