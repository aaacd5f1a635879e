"""The staleness bias by lag on the embedded default: zero at lag 0, growth with the lag, reset at synchronization.

`python bench/staleness.py [--only none gmc] [--json FILE]`. About ten minutes of one idle core.

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
from dataclasses import dataclass
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

S = 16


@dataclass(frozen=True)
class Plan:
    """What is measured for one estimator."""

    estimator: EstimatorName
    rates: tuple[float, ...]
    """Stable at S = 16."""
    lags: tuple[int, ...]
    epsilons: tuple[float, ...]
    """Of the probe; training keeps 0.2."""
    prompts: int
    """Of the probe at lags above 0; at lag 0 the first 32 do."""
    seeds: int


PLANS = (
    Plan("none", (5e-5, 1e-4, 2e-4, 4e-4), (0, 1, 4, 8, 15), (0.2,), prompts=128, seeds=4),
    Plan("gmc", (4e-4, 8e-4, 1.6e-3), (0, 1, 2, 4, 8, 15), (0.2, 0.02), prompts=32, seeds=6),
)
PROMPTS_AT_0 = 32
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

    def __init__(self) -> None:
        self.policy = load_policy(ModelConfig(), device="cpu")
        self.task = load_task(run_config("none", 0, PROMPTS).task)
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

    def cycle(self, plan: Plan, rate: float, seed: int) -> Iterator[Row]:
        """Rows of the probed lags of one cycle, and of lag 0 after the synchronization that ends it."""
        config = run_config(plan.estimator, seed, PROMPTS)
        probe = run_config(plan.estimator, seed + 10**5, plan.prompts)
        self.policy.model.load_state_dict(self.start["model"])
        learner, engine = Learner(self.policy, config.trainer), make_engine(self.policy, config)
        learner.optimizer.load_state_dict(copy.deepcopy(self.start["optimizer"]))
        engine.update_weights(self.weights(), 0)
        old, batches, seen = self.flat(), self.draw(engine, config, 0, S), self.draw(engine, probe, 0, 1)
        size = len(batches) // S
        for lag in range(S):
            if lag in plan.lags:
                moved = float((self.flat() - old).norm())
                yield from self.probes(plan, probe, seen, lag=lag, moved=moved)
            learner.update(batches.rows(lag * size, (lag + 1) * size), rate)
        engine.update_weights(self.weights(), S)
        yield from self.probes(plan, probe, self.draw(engine, probe, S, 1), lag=-1, moved=0.0)

    def probes(
        self, plan: Plan, config: RunConfig, seen: Rollouts, *, lag: int, moved: float
    ) -> Iterator[Row]:
        if lag <= 0:
            seen = seen.rows(0, PROMPTS_AT_0 * config.trainer.group_size)
        logprobs = scored_logprobs(self.policy, seen, config.trainer)
        log_ratios = masked_sum(logprobs - seen.behaviour, seen.mask)
        mass = log_group_mass(log_ratios, config.trainer.group_size).exp()
        for epsilon in plan.epsilons:
            trainer = config.trainer.model_copy(update={"epsilon": epsilon})
            yield {
                "epsilon": epsilon,
                "lag": lag,
                "moved": moved,
                "second_moment": float((log_ratios.exp() - 1).square().mean()),
                "capped": float((mass > 1 + epsilon).float().mean()),
                **staleness_bias(self.policy, seen, trainer),
            }


def measure(plans: Sequence[Plan], file: Path | None) -> list[Row]:
    """All rows, also written to `file` after each seed. Progress goes to stderr."""
    bench, rows = Bench(), []
    for seed in range(max(plan.seeds for plan in plans)):
        reward = bench.make_start(seed)
        print(f"seed {seed}: start with reward {reward:.2f}", file=sys.stderr, flush=True)
        for plan in plans:
            for rate in plan.rates if seed < plan.seeds else ():
                own = bench.cycle(plan, rate, seed)
                rows += [{"estimator": plan.estimator, "rate": rate, "seed": seed, **row} for row in own]
        if file is not None:
            file.write_text(json.dumps(rows))
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


def relative_slope(rows: Sequence[Row], rate: float, smallest: float) -> float:
    """norm / rate as a multiple of that at the smallest rate; NaN where that norm is not positive."""
    own, reference = norm(select(rows, rate=rate)) / rate, norm(select(rows, rate=smallest)) / smallest
    return own / reference if reference > 0 else math.nan


def linearity(rows: Sequence[Row]) -> None:
    """At each lag: 1 where the law is linear in the rate. Rates share their random numbers, so errors are paired."""
    rates = sorted({row["rate"] for row in rows})
    print(f"norm / (lag eta) as a multiple of that at eta = {rates[0]:.1e}")
    for lag in lags_above_0(rows):
        at = select(rows, lag=lag)
        found = [jackknife(at, lambda own: relative_slope(own, rate, rates[0])) for rate in rates[1:]]  # noqa: B023
        cells = [
            f"{rate:.1e}: {value:.2f} +- {error:.2f}"
            for rate, (value, error) in zip(rates[1:], found, strict=True)
        ]
        print(f"  lag {lag:>2}   " + "   ".join(cells))


def lags_above_0(rows: Sequence[Row]) -> list[int]:
    return sorted({row["lag"] for row in rows if row["lag"] > 0})


def slope(rows: Sequence[Row], abscissa: Callable[[Sequence[Row]], float]) -> float:
    """Slope through the origin of the bias norm against `abscissa`, every lag above 0 with equal relative weight."""
    lags = lags_above_0(rows)
    return sum(norm(at := select(rows, lag=lag)) / abscissa(at) for lag in lags) / len(lags)


def exponent(rows: Sequence[Row], abscissa: Callable[[Sequence[Row]], float]) -> float:
    """p of norm ~ abscissa^p, least squares over the logarithms; NaN where a norm is not positive."""
    points = []
    for rate in sorted({row["rate"] for row in rows}):
        for lag in lags_above_0(rows):
            at = select(rows, rate=rate, lag=lag)
            if norm(at) <= 0:
                return math.nan
            points.append((math.log(abscissa(at)), math.log(norm(at))))
    centre = [sum(column) / len(points) for column in zip(*points, strict=True)]
    spread = sum((x - centre[0]) ** 2 for x, _ in points)
    return sum((x - centre[0]) * (y - centre[1]) for x, y in points) / spread


def by_lag(rows: Sequence[Row]) -> None:
    columns = "eta", "lag", "bias norm", "+-", "norm/(lag eta)", "full norm", "E(r-1)^2", "capped", "moved"
    print("".join(f"{name:>15}" for name in columns))
    for rate in sorted({row["rate"] for row in rows}):
        for lag in (0, *lags_above_0(rows), -1):
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


ABSCISSAS: dict[str, Callable[[Sequence[Row]], float]] = {
    "lag x eta": lambda at: at[0]["lag"] * at[0]["rate"],
    "displacement": lambda at: mean(at, "moved"),
    "sqrt E(r-1)^2": lambda at: math.sqrt(mean(at, "second_moment")),
}


def over_four(rows: Sequence[Row], abscissa: Callable[[Sequence[Row]], float]) -> None:
    """Ratio of the slopes at 4 eta and eta, with the error of the ratio: both saw the same random numbers."""
    rates = sorted({row["rate"] for row in rows})
    for low, high in ((low, high) for low in rates for high in rates if math.isclose(high, 4 * low)):
        value, error = jackknife(
            rows,
            lambda own: slope(select(own, rate=high), abscissa) / slope(select(own, rate=low), abscissa),  # noqa: B023
        )
        print(f"    slope at {high:.1e} / slope at {low:.1e}: {value:.2f} +- {error:.2f}")


def laws(rows: Sequence[Row]) -> None:
    """Slopes by rate and exponents, over all lags."""
    for name, abscissa in ABSCISSAS.items():
        slopes = [
            jackknife(select(rows, rate=rate), lambda own: slope(own, abscissa))  # noqa: B023
            for rate in sorted({row["rate"] for row in rows})
        ]
        values = [value for value, _ in slopes]
        told = ", ".join(f"{value:.3g} +- {error:.2g}" for value, error in slopes)
        wide = f"largest / smallest {max(values) / min(values):.2f}" if min(values) > 0 else "not positive"
        value, error = jackknife(rows, lambda some: exponent(some, abscissa))  # noqa: B023
        power = f"; norm ~ ({name})^p, p = {value:.2f} +- {error:.2f}" if math.isfinite(value) else ""
        print(f"  slope against {name}, by rate: {told}; {wide}{power}")
        over_four(rows, abscissa)


def report(rows: Sequence[Row]) -> None:
    by_lag(rows)
    if any(norm(select(rows, rate=rate)) <= 0 for rate in {row["rate"] for row in rows}):
        print("no law: the bias is not above its noise at every rate")
        return
    linearity(rows)
    laws(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[plan.estimator for plan in PLANS])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plans = [plan for plan in PLANS if plan.estimator in options.only]
    rows = measure(plans, options.json)
    for plan in plans:
        for epsilon in plan.epsilons:
            print(
                f"\n{plan.estimator}"
                + (f", probe with epsilon = {epsilon}" if plan.estimator != "none" else "")
            )
            report(select(rows, estimator=plan.estimator, epsilon=epsilon))


if __name__ == "__main__":
    main()
