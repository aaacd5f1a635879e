"""Whole simulated runs, many at a time: levels, rewards, probes and witnesses; as curves, or as rows of a log.

Deterministic: a run is a function of its setting and its own seed, whatever it is simulated beside. Simulated runs test
verdicts, laws and designs; they never stand in for a run of a user's study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibrator.runlogs.curve import Curve, Floats, Series
from calibrator.simulator import drift, policy
from calibrator.simulator.policy import Death, Habits, Stream
from calibrator.simulator.rewards import Counts, draw, mean_and_error
from calibrator.simulator.truth import Truth
from calibrator.simulator.witnesses import witnesses

Reshape = Callable[[Stream, Floats], tuple[Floats, float]]
"""Changes the levels [T + 1] of one run; returns them and the onset, NaN for none."""


@dataclass(frozen=True)
class Setting:
    """What a batch of runs has in common. Lengths and intervals are in updates."""

    updates: int = 1000
    S: int = 1
    queued: int = 0
    """Cycles between drawing rollouts and learning from them: 0 is lockstep, 1 makes the lag reach 2 S - 1."""
    learning_rate: float = 1e-3
    """The peak rate."""
    warmup: int = 0
    """Updates over which the rate rises linearly to its peak."""
    decay: float = 0.0
    """Share of the peak rate that is lost linearly by the end; 1 ends at zero."""
    prompts: int = 8
    group: int = 16
    spread: float = 4.0
    """Concentration of the success rates of prompts around the level: small is diverse."""
    probe_every: int = 8
    """0: no probes."""
    held_out: int = 128
    """Prompts of a probe, one completion each."""
    floor: float = 0.0
    marks: float = 1.0
    """Rewards of a failure and of a success."""
    habits: Habits = field(default_factory=Habits)
    death: Death = field(default_factory=Death)

    @property
    def effective_interval(self) -> int:
        """S_eff = 1 + the largest lag."""
        return (1 + self.queued) * self.S

    def rates(self) -> Floats:
        """eta_u of every update, [T]."""
        u = np.arange(self.updates)
        warm = np.minimum((u + 1.0) / self.warmup, 1.0) if self.warmup else np.ones(self.updates)
        return self.learning_rate * warm * (1.0 - self.decay * u / max(1, self.updates - 1))

    def behaviour(self) -> np.ndarray:
        """Version of the rollouts that each update learns from, [T]."""
        return np.asarray(np.maximum(0, np.arange(self.updates) // self.S - self.queued) * self.S)

    def probed(self) -> np.ndarray:
        """Versions that are probed: 0, and the learner's own every few updates."""
        return (
            np.arange(0, self.updates + 1, self.probe_every) if self.probe_every else np.empty(0, dtype=int)
        )


@dataclass(frozen=True)
class Simulated:
    """n runs of one setting."""

    setting: Setting
    seeds: tuple[int, ...]
    level: Floats
    """Success rate of every version, [n, T + 1]."""
    x: Floats
    """Displacement along the bias, [n, T + 1]; 1 is the end of the validity region. Zero where nothing drifts."""
    onset: Floats
    """Version at which the level began its last fall, [n]; NaN for none."""
    counts: Counts
    """Successes of each group, [n, T, P]."""
    probed: NDArray[np.int64]
    """Held-out prompts solved in each probe, [n, probes]."""

    def curve(self, run: int, *, told: bool = True) -> Curve:
        """One run as the judge sees it; without witnesses where they are not `told`."""
        setting = self.setting
        rates = setting.rates()
        seen = np.arange(1, setting.updates + 1, dtype=np.float64)
        mean, error = mean_and_error(self.counts[run], setting.group)
        at = np.asarray(setting.probed(), dtype=np.float64)
        share = np.asarray(self.probed[run] / setting.held_out)
        spread = np.asarray(np.sqrt(share * (1.0 - share) / (setting.held_out - 1)))
        lag = int((np.arange(setting.updates) - setting.behaviour()).max()) if setting.updates else None
        return Curve(
            updates=setting.updates,
            learning_rate=rates,
            rewards=self._series("reward", setting.behaviour().astype(float), mean, error, seen),
            probes=self._series("probe", at, share, spread, at) if at.size else None,
            witnesses=self.witnesses(run) if told else {},
            max_lag=lag,
        )

    def witnesses(self, run: int) -> dict[str, Floats]:
        """Entropy, gradient norm and the like of each update, [T] each."""
        stream = np.random.default_rng([self.seeds[run], 1])
        mixed = (self.counts[run] > 0) & (self.counts[run] < self.setting.group)
        told = witnesses(
            stream,
            level=self.level[run],
            x=self.x[run],
            behaviour=self.setting.behaviour(),
            rates=self.setting.rates(),
        )
        return {"signal": mixed.mean(axis=1), **told}

    def _series(self, name: str, version: Floats, mean: Floats, error: Floats, seen: Floats) -> Series:
        scale = self.setting.marks - self.setting.floor
        return Series(name, version, self.setting.floor + scale * mean, scale * error, seen)


def simulate(
    setting: Setting,
    seeds: Sequence[int],
    *,
    truth: Truth | None = None,
    world: int = 0,
    deaths: Floats | None = None,
    reshape: Reshape | None = None,
) -> Simulated:
    """Runs of `setting`, one a seed.

    With a `truth` the mean-field model decides who dies and when (as `Truth.collapse_at` with the same `world` does);
    with `deaths` [n] these versions are the onsets, NaN for none; with neither all runs are healthy. `reshape` changes
    the levels last.
    """
    streams = [np.random.default_rng([world, seed]) for seed in seeds]
    x = np.zeros((len(seeds), setting.updates + 1))
    onset = np.full(len(seeds), math.nan) if deaths is None else np.asarray(deaths, dtype=np.float64)
    if truth is not None:
        x = _drift(truth, setting, seeds, world)
        onset = drift.exits(x)
    level = policy.healthy(setting.habits, streams, setting.updates, onset)
    level = policy.die(level, onset, setting.death, streams)
    if reshape is not None:
        changed = [reshape(stream, row) for stream, row in zip(streams, level, strict=True)]
        level = np.array([row for row, _ in changed])
        onset = np.array([at for _, at in changed])
    counts = [
        draw(
            row[setting.behaviour()],
            stream.random((setting.updates, setting.prompts), dtype=np.float32),
            group=setting.group,
            spread=setting.spread,
        )
        for stream, row in zip(streams, level, strict=True)
    ]
    at = setting.probed()
    probed = [stream.binomial(setting.held_out, row[at]) for stream, row in zip(streams, level, strict=True)]
    return Simulated(setting, tuple(seeds), level, x, onset, np.array(counts), np.array(probed))


def _drift(truth: Truth, setting: Setting, seeds: Sequence[int], world: int) -> Floats:
    log_feedback, budget = drift.run_parameters(
        truth, setting.effective_interval, setting.learning_rate, np.asarray(seeds), world=world
    )
    clock = np.concatenate(([0.0], np.cumsum(setting.rates())))
    return drift.displacement(log_feedback, budget, np.broadcast_to(clock, (len(seeds), clock.size)))
