"""The staleness bias by lag on the embedded default: zero at lag 0, growth with the lag, reset at synchronization.

`python bench/staleness.py [--seeds 6] [--prompts 32] [--json FILE]`. About ten minutes of one core.

Each seed makes a policy by on-policy training; from this policy and its optimizer state every (estimator, eta) makes
one cycle of S updates with the trainer's own learner and engine and synchronizes, on the same random numbers. At the
lags below, the probe (`trainer.loop.staleness`) looks at a batch of its own, drawn from the cycle's behaviour policy
and never trained on. `gmc` is also probed with an epsilon at which its cap acts. Standard errors: jackknife over seeds.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import torch

from trainer.algorithms.ratios import log_group_mass, masked_sum
from trainer.config import EstimatorName, ModelConfig, RunConfig, TrainerConfig
from trainer.engines import make_engine
from trainer.loop.clock import Stopwatch
from trainer.loop.learner import Learner
from trainer.loop.mismatch import scored_logprobs
from trainer.loop.rollouts import Rollouts
from trainer.loop.sampling import draw_rollouts
from trainer.loop.staleness import staleness_bias
from trainer.models import load_policy
from trainer.tasks import load_task

S, LAGS = 16, (0, 1, 2, 4, 8, 15)
PLANS: dict[str, tuple[EstimatorName, tuple[float, ...], tuple[float, ...]]] = {
    "none": ("none", (1e-4, 2e-4, 4e-4), (0.2,)),
    "gmc": ("gmc", (4e-4, 8e-4, 1.6e-3), (0.2, 0.02)),
}
"""Estimator, rates that are stable at S = 16, values of epsilon of the probe; training keeps 0.2."""
TRAINED_EPSILON, PROMPTS = 0.2, 8
START_UPDATES, START_RATE = 40, 4e-4

Row = dict[str, Any]


def run_config(estimator: EstimatorName, seed: int, prompts: int) -> RunConfig:
    trainer = TrainerConfig(
        estimator=estimator, prompts_per_update=prompts, epsilon=TRAINED_EPSILON, warmup=0
    )
    return RunConfig(trainer=trainer, sync_interval=S, seed=seed)


class Bench:
    """One policy, put back to the start of its seed before each cycle."""

    def __init__(self, probe_prompts: int) -> None:
        self.policy = load_policy(ModelConfig(), device="cpu")
        self.task = load_task(run_config("none", 0, PROMPTS).task)
        self.probe_prompts = probe_prompts
        self.start: dict[str, Any] = {}

    def draw(self, engine: Any, config: RunConfig, first: int, updates: int) -> Rollouts:
        clock = Stopwatch()
        return draw_rollouts(
            engine, self.task, self.policy, config, first=first, updates=updates, clock=clock
        )

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: p.detach() for name, p in self.policy.model.named_parameters()}

    def flat(self) -> torch.Tensor:
        return torch.cat([p.flatten() for p in self.weights().values()])

    def make_start(self, seed: int) -> float:
        """On-policy training from the embedded policy. Returns the mean reward of the last ten batches."""
        self.policy = load_policy(ModelConfig(), device="cpu")
        config = run_config("none", seed + 10**6, PROMPTS)
        learner, engine = Learner(self.policy, config.trainer), make_engine(self.policy, config)
        rewards = []
        for update in range(START_UPDATES):
            engine.update_weights(self.weights(), update)
            batch = self.draw(engine, config, update, 1)
            learner.update(batch, START_RATE)
            rewards.append(float(batch.reward.mean()))
        state = {"model": self.policy.model.state_dict(), "optimizer": learner.optimizer.state_dict()}
        self.start = copy.deepcopy(state)
        return sum(rewards[-10:]) / 10

    def cycle(
        self, estimator: EstimatorName, rate: float, epsilons: Sequence[float], seed: int
    ) -> Iterator[Row]:
        """Rows of the probed lags of one cycle, and of lag 0 after the synchronization that ends it."""
        config = run_config(estimator, seed, PROMPTS)
        probe = run_config(estimator, seed + 10**5, self.probe_prompts)
        self.policy.model.load_state_dict(self.start["model"])
        learner, engine = Learner(self.policy, config.trainer), make_engine(self.policy, config)
        learner.optimizer.load_state_dict(copy.deepcopy(self.start["optimizer"]))
        engine.update_weights(self.weights(), 0)
        old, batches, seen = self.flat(), self.draw(engine, config, 0, S), self.draw(engine, probe, 0, 1)
        size = len(batches) // S
        for lag in range(S):
            if lag in LAGS:
                yield from self.probes(
                    probe, seen, epsilons, lag=lag, moved=float((self.flat() - old).norm())
                )
            learner.update(batches.rows(lag * size, (lag + 1) * size), rate)
        engine.update_weights(self.weights(), S)
        yield from self.probes(probe, self.draw(engine, probe, S, 1), epsilons, lag=-1, moved=0.0)

    def probes(
        self, config: RunConfig, seen: Rollouts, epsilons: Sequence[float], *, lag: int, moved: float
    ) -> Iterator[Row]:
        logprobs = scored_logprobs(self.policy, seen, config.trainer)
        log_ratios = masked_sum(logprobs - seen.behaviour, seen.mask)
        mass = log_group_mass(log_ratios, config.trainer.group_size).exp()
        for epsilon in epsilons:
            trainer = config.trainer.model_copy(update={"epsilon": epsilon})
            yield {
                "epsilon": epsilon,
                "lag": lag,
                "moved": moved,
                "second_moment": float((log_ratios.exp() - 1).square().mean()),
                "capped": float((mass > 1 + epsilon).float().mean()),
                **staleness_bias(self.policy, seen, trainer),
            }


def measure(seeds: int, prompts: int) -> list[Row]:
    """All rows. Progress goes to stderr."""
    bench, rows = Bench(prompts), []
    for seed in range(seeds):
        reward = bench.make_start(seed)
        print(f"seed {seed}: start with reward {reward:.2f}", file=sys.stderr, flush=True)
        for estimator, rates, epsilons in PLANS.values():
            for rate in rates:
                own = bench.cycle(estimator, rate, epsilons, seed)
                rows += [{"estimator": estimator, "rate": rate, "seed": seed, **row} for row in own]
    return rows


def jackknife(rows: Sequence[Row], statistic: Callable[[Sequence[Row]], float]) -> tuple[float, float]:
    """The statistic and its standard error, leaving out one seed at a time."""
    seeds = sorted({row["seed"] for row in rows})
    left_out = [statistic([row for row in rows if row["seed"] != seed]) for seed in seeds]
    if len(seeds) < 2 or not all(map(math.isfinite, left_out)):
        return statistic(rows), math.nan
    mean, n = sum(left_out) / len(left_out), len(left_out)
    return statistic(rows), math.sqrt((n - 1) / n * sum((value - mean) ** 2 for value in left_out))


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def mean(rows: Sequence[Row], key: str) -> float:
    return sum(row[key] for row in rows) / len(rows)


def norm(rows: Sequence[Row]) -> float:
    """Square root of the mean of `bias_sq`, with the sign of that mean: noise may make it negative."""
    squared = mean(rows, "bias_sq")
    return math.copysign(math.sqrt(abs(squared)), squared)


def slope(rows: Sequence[Row], abscissa: Callable[[Sequence[Row]], float]) -> float:
    """Slope through the origin of the bias norm against `abscissa`, every lag above 0 with equal relative weight."""
    lags = [lag for lag in LAGS if lag > 0]
    return sum(norm(at := select(rows, lag=lag)) / abscissa(at) for lag in lags) / len(lags)


def exponent(rows: Sequence[Row], key: str) -> float:
    """p of norm ~ key^p, least squares over the logarithms at lags above 0; NaN where a norm is not positive."""
    points = []
    for rate in sorted({row["rate"] for row in rows}):
        for lag in LAGS[1:]:
            at = select(rows, rate=rate, lag=lag)
            if norm(at) <= 0:
                return math.nan
            points.append((math.log(mean(at, key)), math.log(norm(at))))
    centre = [sum(column) / len(points) for column in zip(*points, strict=True)]
    spread = sum((x - centre[0]) ** 2 for x, _ in points)
    return sum((x - centre[0]) * (y - centre[1]) for x, y in points) / spread


def by_lag(rows: Sequence[Row]) -> None:
    columns = "eta", "lag", "bias norm", "+-", "norm/(lag eta)", "full norm", "E(r-1)^2", "capped", "moved"
    print("".join(f"{name:>15}" for name in columns))
    for rate in sorted({row["rate"] for row in rows}):
        for lag in (*LAGS, -1):
            at = select(rows, rate=rate, lag=lag)
            value, error = jackknife(at, norm)
            full = mean(at, "full_grad_sq")
            ratio = f"{value / (lag * rate):.3g}" if lag > 0 else "-"
            cells = (
                f"{rate:.1e}",
                "after sync" if lag < 0 else str(lag),
                f"{value:.2e}",
                f"{error:.1e}",
                ratio,
            )
            cells += (f"{math.copysign(math.sqrt(abs(full)), full):.3f}", f"{mean(at, 'second_moment'):.2e}")
            cells += (f"{mean(at, 'capped'):.3f}", f"{mean(at, 'moved'):.3f}")
            print("".join(f"{cell:>15}" for cell in cells))


def laws(rows: Sequence[Row]) -> None:
    """Slopes by rate and their spread, against lag x eta and against the displacement, and the exponents."""
    abscissas: dict[str, Callable[[Sequence[Row]], float]] = {
        "lag x eta": lambda at: at[0]["lag"] * at[0]["rate"],
        "displacement": lambda at: mean(at, "moved"),
    }
    for name, abscissa in abscissas.items():
        slopes = [
            jackknife(select(rows, rate=rate), lambda own: slope(own, abscissa))  # noqa: B023
            for rate in sorted({row["rate"] for row in rows})
        ]
        values = [value for value, _ in slopes]
        told = ", ".join(f"{value:.3g} +- {error:.2g}" for value, error in slopes)
        wide = (
            f"largest / smallest {max(values) / min(values):.2f}"
            if min(values) > 0
            else "no law: not positive"
        )
        print(f"slope against {name}: {told}; {wide}")
    for key, name in (("lag_eta", "lag x eta"), ("moved", "displacement"), ("second_moment", "E(r-1)^2")):
        own = [{**row, "lag_eta": row["lag"] * row["rate"]} for row in rows]
        value, error = jackknife(own, lambda some: exponent(some, key))  # noqa: B023
        print(f"bias norm ~ ({name})^p: p = {value:.2f} +- {error:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.seeds, options.prompts)
    if options.json:
        options.json.write_text(json.dumps(rows))
    for estimator, _, epsilons in PLANS.values():
        for epsilon in epsilons:
            own = select(rows, estimator=estimator, epsilon=epsilon)
            print(f"\n{estimator}" + (f", probe with epsilon = {epsilon}" if estimator != "none" else ""))
            by_lag(own)
            laws(own)


if __name__ == "__main__":
    main()
