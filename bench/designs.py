"""Cost of designs over simulated truths: updates until the recommendation is right at every S, and stays right.

    python bench/designs.py --worlds 100            # resumable; appends to bench/results/designs.csv
    python bench/designs.py --report

Methods: ours (the sweep of calibrator.sweep.design); a dense grid of 4 intervals x 8 rates x 2 seeds, repeated;
Optuna's TPE and Optuna's successive halving, both maximising (L survived) x eta, one study for each S, in turn. All
share the range of rates, the longest run, the online verdict, the stopping L of survivors and the fit.

A truth gives eta*, the geometric mean of its boundary over the grid of S; rates may be chosen in [eta*/16, 8 eta*].
The cap is four times what the dense grid's first pass (64 runs) costs in that truth.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np
import optuna

from calibrator.advice.rules import round_down, stable_limit
from calibrator.laws.evidence import MIN_EVENTS
from calibrator.laws.naive import logistic_boundary
from calibrator.laws.observations import is_event, is_used, observe
from calibrator.laws.posterior import Posterior
from calibrator.laws.priors import scales
from calibrator.laws.solve import Starts, first_starts, resample, solve
from calibrator.laws.types import Run
from calibrator.simulator.truth import NOTICED, Truth, simulated_run
from calibrator.sweep import design
from calibrator.sweep.design import DesignSpace

RESULTS = Path(__file__).parent / "results" / "designs.csv"
INTERVALS = (1, 4, 16, 64)
KINDS = ("power-1", "power-0.5", "ceiling", "constant")
LONGEST = 1000
RISK, FACTOR = 0.05, 2.0
PASSES = 4
"""The cap, in passes over the dense grid."""
PLANNED = 32
"""Most different runs of a round of ours; more of them, late in a race, are more seeds of the same."""
RUNGS = (64, 256, LONGEST)
POINTS, MANY = 1024, 256
"""Sampling points of a fit; half of them beyond so many runs, when the posterior is narrow and rows are many."""
PASS = 64
"""Runs of one pass over the dense grid: 4 intervals, 8 rates, 2 seeds."""


@dataclass(frozen=True)
class World:
    number: int
    kind: str
    truth: Truth
    middle: float
    """eta*"""

    @property
    def space(self) -> DesignSpace:
        return DesignSpace(
            estimator="gmc",
            sync_intervals=INTERVALS,
            learning_rates=(self.middle / 16, 8 * self.middle),
            longest=LONGEST,
            risk=RISK,
            window=NOTICED,  # what the simulated verdict needs; real ones wait for partial falls, too
        )

    def run(self, interval: int, rate: float, seed: int, updates: int) -> Run:
        return simulated_run(
            self.truth,
            sync_interval=interval,
            learning_rate=rate,
            updates=updates,
            seed=seed,
            world=self.number,
        )


def make_world(number: int) -> World:
    """Boundaries in turn; C log-uniform over two decades, B over a factor of 6 relative to eta*."""
    rng = np.random.default_rng([20261201, number])
    kind = KINDS[number % len(KINDS)]
    place, length, knee = math.exp(rng.uniform(math.log(1e-3), math.log(1e-1))), rng.uniform(), rng.uniform()
    sigma_C, sigma_B = rng.uniform(0.1, 0.3), rng.uniform(0.15, 0.35)
    shape = {
        "power-1": {"boundary": "power", "C": place, "alpha": 1.0},
        "power-0.5": {"boundary": "power", "C": place, "alpha": 0.5},
        "ceiling": {"boundary": "ceiling", "C": place, "eta_0": place / (4 * 8**knee)},
        "constant": {"boundary": "constant", "eta_0": place / 8},
    }[kind]
    truth = Truth(**shape, B=1.0, sigma_C=sigma_C, sigma_B=sigma_B)  # type: ignore[arg-type]
    middle = math.exp(float(np.mean([truth.log_eta_max(S) for S in INTERVALS])))
    budget = middle * 15 * 6**length
    return World(number, kind, Truth(**{**asdict(truth), "B": budget}), middle)


# --- methods: each yields batches of runs that it has made and gets the posterior after them --------------------------

Method = Callable[[World], Iterator[list[Run]]]


class Knowledge:
    """Posterior after the runs of a method so far, and the stopping L of survivors that follows from it."""

    def __init__(self, world: World) -> None:
        self.world, self.target = world, math.inf
        self.posterior: Posterior | None = None
        self._modes: Starts | None = None

    def learn(self, runs: Sequence[Run]) -> None:
        """The fit of `design_posterior` with a quarter of its points or less, started from where the last one ended."""
        observations = observe(runs)
        at = scales(observations)
        starts = self._modes or first_starts(observations, at, logistic_boundary(runs))
        points = POINTS if len(runs) <= MANY else POINTS // 2
        solution = solve(observations, at, starts, most_points=points)
        self.posterior, self._modes = resample(solution), solution.modes
        if answerable(runs, self.posterior):
            self.target = design.target_cumulative_lr(self.posterior, runs, self.world.space)

    def length(self, interval: int, rate: float) -> int:
        """Updates that any method gives a run: the longest until the posterior says where survivors are settled."""
        if math.isinf(self.target):
            return LONGEST
        return design.settled_length(self.world.space, interval, rate, target=self.target)


def ours(world: World, known: Knowledge, runs: list[Run], look: int) -> list[Run]:
    if not runs:
        planned = design.first_round(world.space)
    else:
        planned = design.next_round(
            runs, world.space, round_size=min(look, PLANNED), posterior=known.posterior
        )
        planned = (planned * math.ceil(look / len(planned)))[:look]
    seeds = itertools.count(len(runs))
    return [world.run(p.sync_interval, p.learning_rate, next(seeds), p.updates) for p in planned]


def dense_points(world: World, seed: int) -> list[tuple[int, float]]:
    """One replicate of the grid in an order of its own, so that any part of it covers the grid."""
    rates = [world.middle / 16 * 2**k for k in range(8)]
    points = [(S, rate) for S in INTERVALS for rate in rates]
    order = np.random.default_rng([world.number, seed]).permutation(len(points))
    return [points[i] for i in order]


def dense(world: World, known: Knowledge, runs: list[Run], look: int) -> list[Run]:
    made = []
    for position in range(len(runs), len(runs) + look):
        seed, at = divmod(position, 32)
        interval, rate = dense_points(world, seed)[at]
        made.append(world.run(interval, rate, seed, known.length(interval, rate)))
    return made


def survived(run: Run) -> float:
    """L at the last good version, or at the end."""
    return run.cumulative_lr if run.cumulative_lr_onset_low is None else run.cumulative_lr_onset_low


class Searcher:
    """Optuna, one study for each S in turn; maximises (L survived) x eta."""

    def __init__(self, world: World, *, halving: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.halving = halving
        self.studies = {
            S: optuna.create_study(
                direction="maximize",
                sampler=optuna.samplers.RandomSampler(seed=1000 * world.number + S)
                if halving
                else optuna.samplers.TPESampler(seed=1000 * world.number + S),
                pruner=optuna.pruners.SuccessiveHalvingPruner(
                    min_resource=RUNGS[0], reduction_factor=RUNGS[1] // RUNGS[0]
                )
                if halving
                else optuna.pruners.NopPruner(),
            )
            for S in INTERVALS
        }

    def __call__(self, world: World, known: Knowledge, runs: list[Run], look: int) -> list[Run]:
        return [self._trial(world, known, position) for position in range(len(runs), len(runs) + look)]

    def _trial(self, world: World, known: Knowledge, seed: int) -> Run:
        interval = INTERVALS[seed % len(INTERVALS)]
        study, (low, high) = self.studies[interval], world.space.learning_rates
        trial = study.ask()
        rate = trial.suggest_float("learning_rate", low, high, log=True)
        most = known.length(interval, rate)
        for rung in [rung for rung in RUNGS if self.halving and rung < most]:
            run = world.run(interval, rate, seed, rung)
            if is_event(run) and run.updates < rung:
                break
            trial.report(survived(run) * rate, rung)
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                return run
        run = world.run(interval, rate, seed, most)
        study.tell(trial, survived(run) * rate)
        return run


METHODS = ("ours", "dense", "tpe", "halving")


def stepper(name: str, world: World) -> Callable[[World, Knowledge, list[Run], int], list[Run]]:
    if name in ("tpe", "halving"):
        return Searcher(world, halving=name == "halving")
    return {"ours": ours, "dense": dense}[name]


# --- the race ---------------------------------------------------------------------------------------------------------


def answerable(runs: Sequence[Run], posterior: Posterior) -> bool:
    """Whether `calibrate fit` would give a boundary (calibrator.laws.identify.refusal)."""
    events = [run for run in runs if is_event(run)]
    budget = float(np.exp(np.median(posterior.log_B)))
    return len(events) >= MIN_EVENTS and any(
        is_used(run) and not is_event(run) and run.cumulative_lr >= budget for run in runs
    )


def ratios(world: World, runs: Sequence[Run], posterior: Posterior | None) -> list[float]:
    """Recommended over true safe maximum at every S; 0 where nothing is recommended."""
    if posterior is None or not answerable(runs, posterior):
        return [0.0] * len(INTERVALS)
    rates = [round_down(stable_limit(posterior, S, RISK)) for S in INTERVALS]
    return [rate / world.truth.eta_at_risk(S, RISK) for S, rate in zip(INTERVALS, rates, strict=True)]


@dataclass(frozen=True)
class Look:
    runs: int
    updates: int
    ratios: tuple[float, ...]

    @property
    def safe(self) -> bool:
        return max(self.ratios) <= 1

    @property
    def good(self) -> bool:
        return self.safe and min(self.ratios) >= 1 / FACTOR


def until_next_look(runs: int) -> int:
    """Runs until the next look: 4, from 20 runs on a fifth of them, from two dense passes on half, from 8 on all."""
    return max(4, runs // 5) if runs < 2 * PASS else runs // 2 if runs < 8 * PASS else runs


def race(world: World, name: str, cap: float) -> list[Look]:
    """Looks at one method in one world until its updates reach the cap."""
    step, known, runs, looks = stepper(name, world), Knowledge(world), [], []
    while not looks or looks[-1].updates < cap:
        runs += step(world, known, runs, until_next_look(len(runs)))
        known.learn(runs)
        updates = sum(run.updates for run in runs)
        looks.append(Look(len(runs), updates, tuple(ratios(world, runs, known.posterior))))
    return looks


def cap_of(world: World) -> int:
    """PASSES times the updates of the dense grid's first pass, two seeds."""
    known, runs = Knowledge(world), []
    while len(runs) < PASS:
        runs += dense(world, known, runs, 4)
        if len(runs) in (8, 32):
            known.learn(runs)
    return PASSES * sum(run.updates for run in runs)


@dataclass(frozen=True)
class Row:
    world: int
    kind: str
    method: str
    reached: int
    """Updates from which on every look is good; the cap when the last one is not."""
    runs: int
    """Runs made by then."""
    first: int
    """Updates at the first good look."""
    unsafe: float
    """Share of looks with an unsafe rate at some S."""
    last_low: float
    last_high: float
    """Smallest and largest ratio of the recommended to the true safe maximum at the last look."""
    cap: int


def summary(world: World, name: str, looks: Sequence[Look], cap: int) -> Row:
    bad = [i for i, look in enumerate(looks) if not look.good]
    start = bad[-1] + 1 if bad else 0
    reached = looks[start] if start < len(looks) else None
    first = next((look.updates for look in looks if look.good), cap)
    return Row(
        world.number,
        world.kind,
        name,
        min(reached.updates, cap) if reached else cap,
        reached.runs if reached else looks[-1].runs,
        min(first, cap),
        float(np.mean([not look.safe for look in looks])),
        min(looks[-1].ratios),
        max(looks[-1].ratios),
        cap,
    )


# --- files and tables -------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [
            Row(**{f.name: PARSE[str(f.type)](row[f.name]) for f in fields(Row)})
            for row in csv.DictReader(file)
        ]


PARSE: dict[str, Callable[[str], object]] = {"int": int, "str": str, "float": float}


def append(path: Path, row: Row) -> None:
    new = not path.is_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in asdict(row).items()})


def report(rows: Sequence[Row]) -> str:
    methods = [name for name in METHODS if any(row.method == name for row in rows)]
    shared = set.intersection(*({r.world for r in rows if r.method == m} for m in methods))
    lines = [
        f"{len(shared)} truths; updates until the answer is right at every S and stays so",
        f"{'method':10} {'median':>8} {'quartiles':>15} {'runs':>6} {'unreached':>9} {'first':>7} {'unsafe':>7}",
    ]
    medians = {}
    for name in methods:
        mine = [row for row in rows if row.method == name and row.world in shared]
        reached = np.array([row.reached for row in mine])
        medians[name] = float(np.median(reached))
        low, high = np.quantile(reached, [0.25, 0.75])
        lines.append(
            f"{name:10} {medians[name]:8.0f} {low:7.0f}-{high:7.0f} {np.median([r.runs for r in mine]):6.0f} "
            f"{np.mean([r.reached >= r.cap for r in mine]):9.0%} {np.median([r.first for r in mine]):7.0f} "
            f"{np.mean([r.unsafe for r in mine]):7.1%}"
        )
    if "ours" in medians:
        lines += [
            f"ours / {name}: {medians['ours'] / medians[name]:.3f}" for name in methods if name != "ours"
        ]
    for kind in sorted({row.kind for row in rows}):
        mine = {
            m: [r.reached for r in rows if (r.method, r.kind) == (m, kind) and r.world in shared]
            for m in methods
        }
        parts = [f"{name} {np.median(found):.0f}" for name, found in mine.items() if found]
        lines.append(f"  {kind:10} " + ", ".join(parts))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    done = {(row.world, row.method) for row in read(options.out)}
    for number in range(0 if options.report else options.worlds):
        missing = [name for name in options.methods if (number, name) not in done]
        if not missing:
            continue
        world = make_world(number)
        cap = cap_of(world)
        for name in missing:
            append(options.out, summary(world, name, race(world, name, cap), cap))
    print(report(read(options.out)))


if __name__ == "__main__":
    main()
