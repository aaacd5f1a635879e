"""What a cap costs on fixed policies, exactly: expected lost ratio mass and bias of the gradient, beside their bounds.

`python bench/bias.py [--out bench/results/bias.csv] [--figures docs/figures]` enumerates every group of G trajectories
that a tabular policy of a small vocabulary and length can draw, in float64: nothing is sampled. It writes one row for
each pair of policies, G, epsilon and estimator, prints the numbers of docs/estimators.md and draws its figure. About a
minute.

K trajectories, M groups, G their size. The weights come from the trainer's own estimators. Bounds are [derived], with
v = E[(r - 1)^2] under the behaviour policy: see `mass_bound` and `bias_bound`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from torch import Tensor

from reports import axes as ax_tools
from reports.palette import SERIES
from trainer.algorithms import ESTIMATORS, RatioBatch
from trainer.algorithms.advantages import group_advantages
from trainer.config import TrainerConfig
from trainer.names import EstimatorName

CAPPED: tuple[EstimatorName, ...] = ("gmc", "tic", "tic_zero")
SHAPES = {(2, 3): (2, 4, 8, 16), (3, 2): (2, 4, 8)}
"""(vocabulary, length) of the trajectories, and the group sizes that can be enumerated: 245,157 groups at most."""
DRIFTS = (0.1, 0.3, 1.0)
"""Standard deviation of the learner's logits about those of the behaviour policy."""
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)
SEEDS = (0, 1, 2)
SHOWN = (2, 3, 0.3, 0)
"""Vocabulary, length, drift and seed of the case in the figure and the table."""
Advantage = Literal["standardised", "centred"]


@dataclass(frozen=True)
class Policies:
    """A behaviour policy and a learner over the same K trajectories, and what these are worth."""

    behaviour: Tensor
    """[K] probabilities of the trajectories under the behaviour policy; they sum to 1."""
    ratios: Tensor
    """[K] probability under the learner over that under the behaviour policy."""
    scores: Tensor
    """[K, parameters] gradient of the learner's log-probability of each trajectory."""
    rewards: Tensor
    """[K] 0 or 1, at least one of each."""

    @property
    def second_moment(self) -> float:
        """v = E[(r - 1)^2] under the behaviour policy."""
        return float(self.behaviour @ (self.ratios - 1).square())


@dataclass(frozen=True)
class Row:
    """One estimator on one pair of policies. Biases are norms of gradients with respect to the learner's logits."""

    vocabulary: int
    length: int
    drift: float
    seed: int
    second_moment: float
    group_size: int
    epsilon: float
    estimator: EstimatorName
    lost_mass: float
    mass_bound: float
    bias: float
    """With standardised advantages, the default of the trainer."""
    bias_bound: float
    gradient: float
    """Norm of the gradient with full ratios, standardised advantages."""
    centred_bias: float
    centred_bias_bound: float


def policies(vocabulary: int, length: int, drift: float, seed: int) -> Policies:
    """Free logits after every prefix; the learner's are those of the behaviour policy plus normal noise."""
    make = torch.Generator().manual_seed(seed)
    prefixes = sum(vocabulary**t for t in range(length))
    behaviour = torch.randn(prefixes, vocabulary, generator=make, dtype=torch.float64)
    noise = torch.randn(prefixes, vocabulary, generator=make, dtype=torch.float64)
    learner = behaviour + drift * noise
    K = vocabulary**length
    rewards = torch.zeros(K, dtype=torch.float64)
    rewards[torch.randperm(K, generator=make)[: max(1, round(0.4 * K))]] = 1.0
    logs, before = (log_probabilities(logits, length) for logits in (learner, behaviour))
    scores = torch.autograd.functional.jacobian(lambda x: log_probabilities(x, length), learner)
    return Policies(before.exp(), (logs - before).exp(), scores.flatten(1), rewards)


def log_probabilities(logits: Tensor, length: int) -> Tensor:
    """Log-probabilities of all trajectories, the first token varying slowest. [prefixes, V] -> [K]."""
    vocabulary = logits.shape[1]
    steps = torch.log_softmax(logits, dim=-1)
    total, first = torch.zeros(1, dtype=logits.dtype), 0
    for t in range(length):
        here = steps[first : first + vocabulary**t]
        total = (total.unsqueeze(-1) + here).flatten()
        first += vocabulary**t
    return total


@cache
def all_groups(trajectories: int, group_size: int) -> tuple[Tensor, Tensor]:
    """Every multiset of `group_size` of K trajectories, and the log of the number of its orders. [M, G], [M]."""
    drawn = itertools.combinations_with_replacement(range(trajectories), group_size)
    index = torch.from_numpy(np.array(list(drawn), dtype=np.int64))
    counts = torch.zeros(len(index), trajectories, dtype=torch.float64)
    counts.scatter_add_(1, index, torch.ones_like(index, dtype=torch.float64))
    return index, math.lgamma(group_size + 1) - torch.lgamma(counts + 1).sum(dim=1)


def chances(found: Policies, group_size: int) -> Tensor:
    """Probability of each group of independent draws from the behaviour policy. [M]."""
    index, orders = all_groups(len(found.behaviour), group_size)
    return (orders + found.behaviour.log()[index].sum(dim=1)).exp()


def omegas(ratios: Tensor, name: EstimatorName, epsilon: float) -> Tensor:
    """Weights that the trainer's estimator gives to groups with these ratios. [M, G] -> [M, G]."""
    size = ratios.shape[1]
    logprobs = ratios.log().reshape(-1, 1).requires_grad_()
    ones = torch.ones(len(logprobs), dtype=ratios.dtype)
    batch = RatioBatch(
        logprobs, torch.zeros_like(logprobs), torch.ones_like(logprobs, dtype=torch.bool), ones, size
    )
    (found,) = torch.autograd.grad(
        ESTIMATORS[name](batch, TrainerConfig(epsilon=epsilon)).objective, logprobs
    )
    return found.reshape(ratios.shape)


def expected_gradient(found: Policies, weights: Tensor, advantages: Tensor) -> Tensor:
    """E[(1/G) sum_i w_i A_i grad log pi(tau_i)] over all groups, both [M, G]. [parameters]."""
    index, _ = all_groups(len(found.behaviour), weights.shape[1])
    terms = chances(found, weights.shape[1]).unsqueeze(1) * weights * advantages / weights.shape[1]
    by_trajectory = torch.zeros(len(found.behaviour), dtype=terms.dtype)
    return by_trajectory.index_add_(0, index.flatten(), terms.flatten()) @ found.scores


def mass_bound(second_moment: float, group_size: int, epsilon: float, name: EstimatorName) -> float:
    """Bound on E[sum_i (r_i - omega_i)] / G. [derived]

    (x - 1 - eps)_+ <= (x - 1)^2 / (4 eps) for every x. gmc loses E[(m - 1 - eps)_+], m the mean of G independent
    ratios, with E[(m - 1)^2] = v / G. tic loses E[(r - 1 - eps)_+]. tic_zero loses 1 + eps more wherever r > 1 + eps,
    which by Chebyshev's inequality has probability v / eps^2 at most.
    """
    if name == "gmc":
        return second_moment / (4 * group_size * epsilon)
    dropped = (1 + epsilon) * second_moment / epsilon**2 if name == "tic_zero" else 0.0
    return second_moment / (4 * epsilon) + dropped


def bias_bound(found: Policies, mass: float, group_size: int, advantage: Advantage) -> float:
    """Bound on the norm of the gradient's bias: largest abs(A_i) x largest norm of a score x lost mass. [derived]

    The triangle inequality. Rewards are within [0, 1], so that centred advantages are at most 1 - 1/G; standardised
    ones are at most sqrt(G - 1).
    """
    largest = math.sqrt(group_size - 1) if advantage == "standardised" else 1 - 1 / group_size
    return largest * float(found.scores.norm(dim=1).max()) * mass


def rows_of(vocabulary: int, length: int, drift: float, seed: int, sizes: Sequence[int]) -> Iterator[Row]:
    """All estimators and thresholds at all group sizes, for one pair of policies."""
    found = policies(vocabulary, length, drift, seed)
    v = found.second_moment
    for size in sizes:
        index, _ = all_groups(len(found.behaviour), size)
        ratios, chance = found.ratios[index], chances(found, size)
        kinds: tuple[Advantage, ...] = ("standardised", "centred")
        advantages = {
            kind: group_advantages(
                found.rewards[index].flatten(), TrainerConfig(group_size=size, advantage=kind)
            ).reshape(index.shape)
            for kind in kinds
        }
        full = float(expected_gradient(found, ratios, advantages["standardised"]).norm())
        for epsilon, name in itertools.product(EPSILONS, CAPPED):
            lost = ratios - omegas(ratios, name, epsilon)
            bound = mass_bound(v, size, epsilon, name)
            bias = {kind: float(expected_gradient(found, lost, advantages[kind]).norm()) for kind in kinds}
            limit = {kind: bias_bound(found, bound, size, kind) for kind in kinds}
            yield Row(
                vocabulary=vocabulary, length=length, drift=drift, seed=seed, second_moment=v,
                group_size=size, epsilon=epsilon, estimator=name,
                lost_mass=float(chance @ lost.mean(dim=1)), mass_bound=bound,
                bias=bias["standardised"], bias_bound=limit["standardised"], gradient=full,
                centred_bias=bias["centred"], centred_bias_bound=limit["centred"],
            )  # fmt: skip


def main() -> None:
    """Enumerate, write, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("bench/results/bias.csv"))
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    args = parser.parse_args()
    rows = [
        row
        for (vocabulary, length), sizes in SHAPES.items()
        for drift, seed in itertools.product(DRIFTS, SEEDS)
        for row in rows_of(vocabulary, length, drift, seed, sizes)
    ]
    write(rows, args.out)
    print_counts(rows)
    print_case(rows)
    draw(rows, args.figures / "estimator-bias.svg")


def write(rows: Sequence[Row], path: Path) -> None:
    """One line a row, six digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows([f"{x:.6g}" if isinstance(x, float) else x for x in astuple(row)] for row in rows)


def by_estimator(rows: Sequence[Row]) -> list[dict[EstimatorName, Row]]:
    """The three estimators of each case side by side."""
    cases: dict[tuple[Any, ...], dict[EstimatorName, Row]] = {}
    for row in rows:
        key = (row.vocabulary, row.length, row.drift, row.seed, row.group_size, row.epsilon)
        cases.setdefault(key, {})[row.estimator] = row
    return list(cases.values())


def print_counts(rows: Sequence[Row]) -> None:
    """In how many cases each statement holds; equality, up to rounding, counts as holding."""
    cases = by_estimator(rows)
    slack = 1e-12
    print(f"{len(cases)} cases of policies, G and epsilon")
    for name in ("lost_mass", "bias", "centred_bias"):
        ordered = [
            [getattr(case[a], name) <= getattr(case[b], name) + slack for a, b in itertools.pairwise(CAPPED)]
            for case in cases
        ]
        first, second = (sum(column) for column in zip(*ordered, strict=True))
        print(f"{name}: gmc <= tic in {first}, tic <= tic_zero in {second}")
    within = sum(row.lost_mass <= row.mass_bound + slack for row in rows)
    biased = sum(
        row.bias <= row.bias_bound + slack and row.centred_bias <= row.centred_bias_bound + slack
        for row in rows
    )
    print(f"within the bound: lost mass {within}, both biases {biased}, of {len(rows)} rows")


def print_case(rows: Sequence[Row]) -> None:
    """The shown case at epsilon = 0.2 over G, and at G = 8 over epsilon."""
    shown = [case for case in by_estimator(rows) if is_shown(case["gmc"])]
    print("\n| G | epsilon | " + " | ".join(f"`{name}`: lost mass, bound, bias" for name in CAPPED) + " |")
    print("|---" * 5 + "|")
    for case in shown:
        row = case["gmc"]
        if row.epsilon == 0.2 or row.group_size == 8:
            cells = [
                f"{case[name].lost_mass:.2g}, {case[name].mass_bound:.2g}, {case[name].bias:.2g}"
                for name in CAPPED
            ]
            print(f"| {row.group_size} | {row.epsilon:g} | " + " | ".join(cells) + " |")


def is_shown(row: Row) -> bool:
    return (row.vocabulary, row.length, row.drift, row.seed) == SHOWN


def draw(rows: Sequence[Row], path: Path) -> None:
    """Lost mass and bias of the shown case over G at epsilon = 0.2, and over epsilon at G = 8."""
    shown = [row for row in rows if is_shown(row)]
    over_size = [row for row in shown if row.epsilon == 0.2]
    over_epsilon = [row for row in shown if row.group_size == 8]
    style = {**ax_tools.STYLE, "svg.hashsalt": "bias", "figure.facecolor": "white"}
    with rc_context(style):
        figure, cells = ax_tools.panels(4)
        for axes, (part, x, y, title) in zip(
            cells,
            (
                (over_size, "group_size", "lost_mass", "lost mass, ε = 0.2"),
                (over_epsilon, "epsilon", "lost_mass", "lost mass, G = 8"),
                (over_size, "group_size", "bias", "bias of the gradient, ε = 0.2"),
                (over_epsilon, "epsilon", "bias", "bias of the gradient, G = 8"),
            ),
            strict=True,
        ):
            draw_panel(axes, part, x, y)
            axes.set_title(title)
        figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")


def draw_panel(axes: Axes, rows: Sequence[Row], x: str, y: str) -> None:
    """One line an estimator with its bound dashed; what is exactly zero lies below the panel."""
    bound = {"lost_mass": "mass_bound", "bias": "bias_bound"}[y]
    for (color, _), name in zip(SERIES, CAPPED, strict=False):
        own = [row for row in rows if row.estimator == name]
        places = [getattr(row, x) for row in own]
        axes.plot(places, [getattr(row, y) for row in own], color=color, marker="o", markersize=4, label=name)
        axes.plot(
            places, [getattr(row, bound) for row in own], color=color, linestyle="--", linewidth=1, alpha=0.8
        )
    axes.plot([], [], color="#7b8490", linestyle="--", linewidth=1, label="bound")
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({getattr(row, x) for row in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel({"group_size": "group size G", "epsilon": "ratio threshold ε"}[x])
    axes.legend(loc="best")


if __name__ == "__main__":
    main()
