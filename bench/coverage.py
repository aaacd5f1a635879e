"""Coverage of the laws' intervals and safety of the recommended rate, over simulated studies with known truth.

`python bench/coverage.py PART [--studies N] [--folder bench/results]`, PART one of coverage, safety and both with
-other-grids, makes what is still missing, one line of CSV a study; killed, it goes on where it was. `--report` prints
the tables. One process, about 0.15 s a study.

A study is a coarse grid of runs of about equal cumulative learning rate, drawn at random with its truth: where the
boundary lies within the grid, B over C, the length of the runs and their spread sigma_B. Runs come from
`calibrator.simulator.truth`, rates from `calibrator.advice.recommend`. Of `calibrator.laws.fit.fit_runs` only the
headline is computed, without its side questions; a test holds that the numbers are the same.
"""

# ruff: noqa: N815 (sigma_C is the symbol of the laws)

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np
from scipy.stats import binomtest

from calibrator.advice.cost import CostModel
from calibrator.advice.recommend import REFUSALS, recommend
from calibrator.advice.request import AdviceRequest
from calibrator.laws.boundaries import CONSTANT, POWER
from calibrator.laws.evidence import MIN_EVENTS, evidence
from calibrator.laws.fit import FittedStratum, fit_runs
from calibrator.laws.naive import logistic_boundary
from calibrator.laws.observations import observe
from calibrator.laws.posterior import interval
from calibrator.laws.priors import scales
from calibrator.laws.solve import Solution, first_starts, resample, solve
from calibrator.laws.types import Estimate, Identifiable, Run, StratumFit
from calibrator.simulator.truth import INDEX, Truth, simulated_run

RISK = 0.05
HORIZON = 10_000
COST = CostModel(
    generate=1.0, score=0.0, learn=1.0, synchronize=4.0, origin="assumed",
    prompts_per_update=8, group_size=16, response_length=100.0,
)  # fmt: skip
GRIDS = {
    "36": (((8, 16, 32), 6, 2, 1.5), ((4, 8, 16), 6, 2, 1.5)),
    "16": (((8, 32), 4, 2, 2.0), ((4, 16), 4, 2, 2.0)),
    "36 coarse": (((8, 16, 32), 6, 2, 2.0), ((4, 8, 16), 6, 2, 2.0)),
    "36 wide": (((1, 4, 16, 64), 9, 1, 1.7), ((1, 4, 16, 64), 9, 1, 2.0)),
}
"""For each size of a study two grids that take turns: intervals, rates at each, seeds, factor between rates. The coarse
ones are those of tables/law-holds.csv; the wide ones spread as many runs over more intervals, one seed each."""
TILT = 0.5
"""Rates at S are taken S^-TILT lower: half-way between no dependence on S and the published 1/S."""


@dataclass(frozen=True)
class Scenario:
    boundary: str = "power"
    alpha: float = 1.0
    sigma_C: float | tuple[float, float] = 0.2
    grid: str = "36"
    decaying: bool = False


COVERAGE = {
    "alpha 1": Scenario(),
    "alpha 0.5": Scenario(alpha=0.5),
    "alpha 0": Scenario(alpha=0.0),
    "ceiling": Scenario(boundary="ceiling"),
    "alpha 1, 16 runs": Scenario(grid="16"),
    "alpha 1, sigma_C 0.5": Scenario(sigma_C=0.5),
    "alpha 1, decaying rate": Scenario(decaying=True),
    "ceiling, 16 runs, sigma_C 0.5": Scenario(boundary="ceiling", sigma_C=0.5, grid="16"),
}
OTHER_GRIDS = {
    "alpha 1, coarse grid": Scenario(grid="36 coarse"),
    "alpha 1, wide grid": Scenario(grid="36 wide"),
    "alpha 1, wide grid, sigma_C 0.5": Scenario(sigma_C=0.5, grid="36 wide"),
}
FAMILIES = (
    ("power", 1.0),
    ("ceiling", math.nan),
    ("power", 0.5),
    ("power", 0.0),
)
"""Truths that take turns in the safety studies."""
SPREADS: dict[str, float | tuple[float, float]] = {
    "0.1": 0.1, "0.2": 0.2, "0.3": 0.3, "0.5": 0.5, "0.1-0.5": (0.1, 0.5),
}  # fmt: skip
Row = dict[str, object]


@dataclass(frozen=True)
class Study:
    truth: Truth
    runs: list[Run]
    intervals: tuple[int, ...]


def draw_study(scenario: Scenario, number: int) -> Study:
    """The study with this number: the same runs whenever it is asked for."""
    rng = np.random.default_rng([number, *map(ord, repr(scenario))])
    intervals, count, seeds, factor = GRIDS[scenario.grid][number // len(FAMILIES) % 2]
    middle = math.exp(float(np.mean(np.log(intervals))))
    centre = math.exp(rng.uniform(math.log(1e-7), math.log(1e-3)))
    rates = centre * factor ** (np.arange(count) - (count - 1) / 2)
    truth = draw_truth(scenario, rng, intervals, rates)
    length = truth.B * math.exp(rng.uniform(math.log(2), math.log(5)))
    tilted = [(S, float(f"{eta * (S / middle) ** -TILT:.3g}")) for S in intervals for eta in rates]
    runs = [
        draw_run(truth, length, S, eta, (seed, number), decaying=scenario.decaying)
        for S, eta in tilted
        for seed in range(seeds)
    ]
    return Study(truth, runs, intervals)


def draw_truth(
    scenario: Scenario, rng: np.random.Generator, intervals: Sequence[int], rates: np.ndarray
) -> Truth:
    """A boundary that passes the grid's middle S in the middle half of its rates; B is 2 to 60 times S eta there."""
    middle = math.exp(float(np.mean(np.log(intervals))))
    quarter = 0.25 * math.log(rates[-1] / rates[0])
    height = float(np.mean(np.log(rates))) + rng.uniform(-quarter, quarter)
    spread = scenario.sigma_C
    sigma_C = spread if isinstance(spread, float) else float(rng.uniform(*spread))
    B = middle * math.exp(height + rng.uniform(math.log(2), math.log(60)))
    sigma_B = math.exp(rng.uniform(math.log(0.15), math.log(0.4)))
    bend = math.exp(rng.uniform(math.log(2), math.log(32)))  # S at which ceiling and staleness weigh the same
    if scenario.boundary == "ceiling":
        eta_0 = math.exp(height) * (1 + (middle - 1) / (bend - 1))
        return Truth("ceiling", B=B, C=eta_0 * (bend - 1), eta_0=eta_0, sigma_C=sigma_C, sigma_B=sigma_B)
    C = math.exp(height) * middle**scenario.alpha
    return Truth("power", B=B, C=C, alpha=scenario.alpha, sigma_C=sigma_C, sigma_B=sigma_B)


def draw_run(truth: Truth, length: float, S: int, eta: float, key: tuple[int, int], *, decaying: bool) -> Run:
    """A run of L = `length`, but at least four synchronizations and 100 updates; `key` is its seed and its world."""
    updates = max(math.ceil(length / eta), 4 * S, 100) * (2 if decaying else 1)
    rates = eta * (1 - np.arange(updates) / updates) if decaying else None
    seed, world = key
    return simulated_run(
        truth, sync_interval=S, learning_rate=eta, updates=updates, seed=seed, world=world, rates=rates
    )


def coverage_row(scenario: Scenario, number: int) -> Row:
    """Intervals of the true boundary's own model, and of B, beside the truth."""
    study = draw_study(scenario, number)
    truth = {"C": study.truth.C, "alpha": study.truth.alpha, "eta_0": study.truth.eta_0, "B": study.truth.B}
    fit, refused = headline(study.runs)
    row: Row = {"refusal": refused, "weight": "" if fit is None else f"{fit.share[own(study)]:.4g}"}
    estimates = {} if fit is None else intervals(fit, own(study))
    for name, value in truth.items():
        row[name] = f"{value:.6g}"
        estimate = estimates.get(name)
        row[f"{name}_low"] = "" if estimate is None else f"{estimate.low:.6g}"
        row[f"{name}_high"] = "" if estimate is None else f"{estimate.high:.6g}"
    return row


def own(study: Study) -> int:
    """Index of the boundary from which the study was drawn."""
    return INDEX[study.truth.boundary]


def headline(runs: Sequence[Run]) -> tuple[Solution | None, str]:
    """The posterior of `fit_runs` without its side questions, or the code of the finding that refuses it."""
    seen = evidence(runs)
    if len(seen.events) >= MIN_EVENTS and seen.survivors:
        observations = observe(runs)
        at = scales(observations)
        fit = solve(observations, at, first_starts(observations, at, logistic_boundary(runs)))
        draws, weight = fit.pooled
        if max(run.cumulative_lr for run in seen.survivors) >= np.exp(
            interval(draws.log_B, weights=weight).estimate
        ):
            return fit, ""
    [fitted] = fit_runs(runs)
    return None, next(finding.code for finding in fitted.summary.findings if finding.code in REFUSALS)


def intervals(fit: Solution, boundary: int) -> dict[str, Estimate]:
    """What `fit.json` says of one boundary, and B."""
    draws, weights = fit.draws[boundary], fit.weights[boundary]
    everything, every_weight = fit.pooled
    found = {"B": interval(np.exp(everything.log_B), weights=every_weight)}
    if boundary != CONSTANT:
        found["C"] = interval(np.exp(draws.log_C), weights=weights)
    if boundary == POWER:
        found["alpha"] = interval(draws.alpha, weights=weights)
    else:
        found["eta_0"] = interval(np.exp(draws.log_eta_0), weights=weights)
    return found


def safety_row(scenario: Scenario, number: int) -> Row:
    """The recommended pair, and the recommended over the true safe rate at every S of the grid."""
    study = draw_study(scenario, number)
    fit, refused = headline(study.runs)
    row: Row = {
        "boundary": scenario.boundary,
        "alpha": f"{scenario.alpha:g}",
        "grid": scenario.grid,
        "sigma_C": f"{study.truth.sigma_C:.4g}",
        "refusal": refused,
        "S": "",
        "ratio": "",
        "ratios": "",
    }
    if fit is None:
        return row
    advice = recommend(stratum(study.runs, fit), request(study))
    ratios = {
        each.sync_interval: each.learning_rate / study.truth.eta_at_risk(each.sync_interval, RISK)
        for each in advice.frontier
    }
    return row | {
        "S": advice.sync_interval,
        "ratio": f"{ratios[advice.sync_interval]:.4g}",
        "ratios": " ".join(f"{S}:{ratio:.4g}" for S, ratio in ratios.items()),
    }


def request(study: Study) -> AdviceRequest:
    return AdviceRequest(horizon=HORIZON, risk=RISK, sync_intervals=study.intervals, cost=COST)


def stratum(runs: Sequence[Run], fit: Solution) -> FittedStratum:
    """What `recommend` needs of a fit."""
    summary = StratumFit(
        estimator=runs[0].estimator,
        runs=len(runs),
        events=0,
        survivors=0,
        excluded=0,
        identifiable=Identifiable(C=True, alpha=True, B=True),
        longest_cumulative_lr=evidence(runs).longest,
    )
    return FittedStratum(summary, resample(fit), tuple(runs))


Tasks = Iterable[tuple[str, int, Callable[[], Row]]]


def coverage_tasks(studies: int, scenarios: Mapping[str, Scenario] = COVERAGE) -> Tasks:
    for number in range(studies):
        for name, scenario in scenarios.items():
            yield name, number, lambda s=scenario, n=number: coverage_row(s, n)


def safety_tasks(studies: int, grids: Sequence[str] = ("36", "16")) -> Tasks:
    """Truths and grids take turns, so that each grid sees each truth."""
    for number in range(studies):
        boundary, alpha = FAMILIES[number % len(FAMILIES)]
        grid = grids[number // (2 * len(FAMILIES)) % len(grids)]
        for name, spread in SPREADS.items():
            scenario = Scenario(boundary, alpha, spread, grid)
            yield name, number, lambda s=scenario, n=number: safety_row(s, n)


TASKS: dict[str, tuple[Callable[[int], Tasks], int]] = {
    "coverage": (coverage_tasks, 400),
    "safety": (safety_tasks, 1000),
    "coverage-other-grids": (lambda studies: coverage_tasks(studies, OTHER_GRIDS), 400),
    "safety-other-grids": (lambda studies: safety_tasks(studies, ("36 coarse", "36 wide")), 200),
}


def make(path: Path, tasks: Tasks) -> None:
    """Append the rows that `path` lacks. A line that a kill tore is made again."""
    if path.is_file() and (torn := path.read_bytes().rpartition(b"\n")[2]):
        os.truncate(path, path.stat().st_size - len(torn))
    done = {(row["scenario"], int(row["study"])) for row in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    start, made = time.perf_counter(), 0
    with path.open("a", newline="", encoding="utf-8") as file:
        for name, number, task in tasks:
            if (name, number) in done:
                continue
            row = {"scenario": name, "study": number} | task()
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            made += 1
    print(f"{made} studies, {time.perf_counter() - start:.0f} s", file=sys.stderr)


def read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def coverage_report(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Share of intervals that hold the truth; refusals apart."""
    names = ("C", "alpha", "eta_0", "B")
    lines = [
        f"| scenario | studies | refused | {' | '.join(names)} | true model's median weight |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        own = [row for row in rows if row["scenario"] == scenario]
        refused = sum(bool(row["refusal"]) for row in own)
        weights = [float(row["weight"]) for row in own if row["weight"]]
        shares = " | ".join(_covered(own, name) for name in names)
        lines.append(f"| {scenario} | {len(own)} | {refused} | {shares} | {np.median(weights):.2f} |")
    return lines


def _covered(rows: Sequence[Mapping[str, str]], name: str) -> str:
    known = [row for row in rows if row[f"{name}_low"]]
    if not known:
        return "-"
    inside = [float(row[f"{name}_low"]) <= float(row[name]) <= float(row[f"{name}_high"]) for row in known]
    return f"{np.mean(inside):.1%} of {len(known)}"


def safety_report(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Share of recommended rates above the true safe maximum, and the median of their ratio."""
    lines = [
        "| sigma_C | truths | grid | studies | refused | unsafe | p (above 5 %) | median ratio | largest | "
        "unsafe at any S of the grid |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for spread in dict.fromkeys(row["scenario"] for row in rows):
        same = [row for row in rows if row["scenario"] == spread]
        grids = list(dict.fromkeys(row["grid"] for row in same))
        for grid in grids:
            lines.append(_safety_line(f"{spread} | all | {grid}", [r for r in same if r["grid"] == grid]))
        lines.append(_safety_line(f"{spread} | all | {' and '.join(grids)}", same))
    for grid in dict.fromkeys(row["grid"] for row in rows):
        sharp = [row for row in rows if row["scenario"] in ("0.1", "0.2", "0.3") and row["grid"] == grid]
        lines.append(_safety_line(f"0.1, 0.2 and 0.3 | all | {grid}", sharp))
    drawn = [row for row in rows if row["scenario"] == "0.1-0.5"]
    for boundary, alpha in FAMILIES:
        part = [row for row in drawn if (row["boundary"], row["alpha"]) == (boundary, f"{alpha:g}")]
        name = boundary if boundary == "ceiling" else f"alpha {alpha:g}"
        lines.append(_safety_line(f"0.1-0.5 | {name} | all", part))
    return lines


def _safety_line(name: str, rows: Sequence[Mapping[str, str]]) -> str:
    ratios = np.array([float(row["ratio"]) for row in rows if row["ratio"]])
    if not ratios.size:
        return f"| {name} | {len(rows)} | {len(rows)} | - | - | - | - | - |"
    every = np.array([float(pair.split(":")[1]) for row in rows for pair in row["ratios"].split()])
    unsafe = int(np.sum(ratios > 1))
    p = binomtest(unsafe, ratios.size, RISK, alternative="greater").pvalue
    return (
        f"| {name} | {len(rows)} | {len(rows) - ratios.size} | {unsafe} ({unsafe / ratios.size:.1%}) | {p:.2g} | "
        f"{np.median(ratios):.2f} | {ratios.max():.2f} | {np.mean(every > 1):.1%} |"
    )


def main() -> None:
    """Make the missing studies, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=list(TASKS))
    parser.add_argument("--studies", type=int, help="of each scenario")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args()
    path = args.folder / f"{args.part}.csv"
    tasks, studies = TASKS[args.part]
    if not args.report:
        make(path, tasks(args.studies or studies))
    report = coverage_report if args.part.startswith("coverage") else safety_report
    print("\n".join(report(read(path))))


if __name__ == "__main__":
    main()
