"""The sweep's design on the real dense grid: does it find the boundary that all runs of the grid show?

    python bench/replay_grid.py [--grid FILE.csv] [--replays 100] [--rounds 16] [--out FILE.csv]

A replay is the sweep of calibrator.sweep.design for one estimator, from the first round until the answer is sharp at
every S, on runs that were really made: it chooses among the points of the grid that still have a seed (the first round
is moved to the nearest ones), a run of n updates has the outcome that its row has when cut there, and each replay
takes the seeds of a point in an order of its own. At every S
the recommended rate is compared with the grid's boundary (the largest eta at which all seeds are stable) and with the
smallest eta at which two seeds collapsed. Appends a row for each replay and S to the table; resumable.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np

from calibrator.advice.rules import round_down, stable_limit
from calibrator.cli.source import load_source
from calibrator.laws.fit import design_posterior
from calibrator.laws.observations import is_event
from calibrator.laws.table import read_runs
from calibrator.laws.types import Run
from calibrator.sweep import design
from calibrator.sweep.design import DesignSpace, ProposedRun
from calibrator.verdicts.types import Verdict
from trainer.config import cumulative_learning_rate

RESULTS = Path(__file__).parent / "results"
RISK, SHARP, STEP = 0.05, 1.5, 2.0
"""Risk of the rule, the stop rule's factor, and the ratio between neighbouring rates of the grid."""
WARMUP = load_source(None).config.trainer.warmup
MOST_ROUNDS, ROUND_SIZE = 16, 4

Point = tuple[int, float]
Grid = dict[Point, list[Run]]


@dataclass(frozen=True)
class Row:
    estimator: str
    replay: int
    sync_interval: int
    recommended: float
    boundary: float
    """Largest eta at which all seeds are stable; 0 when there is none."""
    fatal: float
    """Smallest eta at which two seeds collapsed; infinite when there is none."""
    runs: int
    updates: int
    """Of the whole replay."""
    sharp: int
    """Whether the stop rule ended it, rather than the number of rounds or the end of the grid's runs."""


def read_grid(path: Path, estimator: str) -> Grid:
    """Rows of one estimator by point, ordered by seed."""
    grid: Grid = {}
    for run in sorted(read_runs(path), key=lambda run: run.seed):
        if run.estimator == estimator:
            grid.setdefault((run.sync_interval, run.learning_rate), []).append(
                run.model_copy(update={"strata": {}})
            )
    return grid


def boundary(grid: Grid, interval: int) -> float:
    """Largest eta at which all seeds are stable; 0 when there is none."""
    calm = [
        rate for (S, rate), runs in grid.items() if interval == S and all(r.verdict.is_survivor for r in runs)
    ]
    return max(calm, default=0.0)


def fatal(grid: Grid, interval: int) -> float:
    """Smallest eta at which two seeds collapsed; infinite when there is none."""
    dead = [rate for (S, rate), runs in grid.items() if interval == S and sum(map(is_event, runs)) >= 2]
    return min(dead, default=math.inf)


def cut(run: Run, updates: int, space: DesignSpace) -> Run:
    """The run as it is judged when it ends after `updates` updates."""
    if updates >= run.updates:
        return run
    total = cumulative_learning_rate(updates, peak=run.learning_rate, warmup=WARMUP)
    kept = {
        "updates": updates,
        "cumulative_lr": total,
        "max_lag": min(run.max_lag, updates - 1),
    }
    if not is_event(run):
        return run.model_copy(update=kept)
    low, high = run.onset_low or 0.0, run.onset_high or float(run.updates)
    if high + space.window_at(run.sync_interval) <= updates:
        return run.model_copy(update=kept)
    verdict = Verdict.STABLE if updates <= low else Verdict.INCONCLUSIVE
    none = dict.fromkeys(
        ("onset_low", "onset_high", "cumulative_lr_onset_low", "cumulative_lr_onset_high"), None
    )
    return run.model_copy(update={**kept, **none, "verdict": verdict})


class Stock:
    """The grid's runs that a replay has not used yet, each point's seeds in an order of the replay's own."""

    def __init__(self, grid: Grid, replay: int) -> None:
        rng = np.random.default_rng([20261202, replay])
        self._left = {point: [grid[point][i] for i in rng.permutation(len(grid[point]))] for point in grid}

    def points(self) -> list[Point]:
        """Those that still have a run."""
        return sorted(point for point, runs in self._left.items() if runs)

    def take(self, wanted: ProposedRun, space: DesignSpace) -> Run | None:
        """The next run at the point nearest to a proposal at its S, cut to its length; None when S is used up."""
        here = [rate for (S, rate), runs in self._left.items() if wanted.sync_interval == S and runs]
        if not here:
            return None
        rate = min(here, key=lambda rate: (abs(math.log(rate / wanted.learning_rate)), rate))
        run = self._left[wanted.sync_interval, rate].pop()
        length = round(wanted.updates * max(1.0, wanted.learning_rate / rate))
        cycles = math.ceil(length / wanted.sync_interval)
        return cut(run, min(cycles * wanted.sync_interval, space.longest), space)


def space_of(grid: Grid, estimator: str) -> DesignSpace:
    rates = [rate for _, rate in grid]
    return DesignSpace(
        estimator=estimator,
        sync_intervals=tuple(sorted({S for S, _ in grid})),
        learning_rates=(min(rates), max(rates)),
        longest=max(run.updates for runs in grid.values() for run in runs),
        warmup=WARMUP,
        risk=RISK,
    )


def replay(grid: Grid, estimator: str, number: int, rounds: int = MOST_ROUNDS) -> list[Row]:
    """One sweep over the grid's runs, of at most so many rounds, and what it would recommend at every S."""
    space, stock = space_of(grid, estimator), Stock(grid, number)
    runs: list[Run] = []
    planned, sharp = design.first_round(space), False
    for _ in range(rounds):
        new = [run for wanted in planned if (run := stock.take(wanted, space)) is not None]
        if not new:
            break
        runs += new
        posterior = design_posterior(runs)
        sharp = design.narrow_enough(posterior, space.sync_intervals, risk=RISK, factor=SHARP)
        if sharp:
            break
        planned = design.next_round(
            runs, space, round_size=ROUND_SIZE, posterior=posterior, pairs=stock.points()
        )
    return [
        Row(
            estimator,
            number,
            S,
            _recommended(runs, S),
            boundary(grid, S),
            fatal(grid, S),
            len(runs),
            sum(run.updates for run in runs),
            int(sharp),
        )
        for S in space.sync_intervals
    ]


def _recommended(runs: Sequence[Run], interval: int) -> float:
    """As `calibrate recommend` would say it: rounded down, and at most the largest tested rate."""
    posterior = design_posterior(runs)
    if posterior is None or not any(is_event(run) for run in runs):
        return 0.0
    limit = stable_limit(posterior, interval, RISK)
    return round_down(min(limit, max(run.learning_rate for run in runs)))


def report(rows: Sequence[Row]) -> str:
    """Shares of pairs of S and replay that are near the boundary, and of those at a fatal rate."""
    lines = [
        f"{'estimator':10} {'S':>4} {'boundary':>9} {'fatal':>9} {'recommended (5, 50, 95 %)':>30} "
        f"{'within a step':>14} {'fatal':>6}"
    ]
    for estimator, S in sorted({(row.estimator, row.sync_interval) for row in rows}):
        lines.append(
            _line(
                f"{estimator:10} {S:4}", [r for r in rows if (r.estimator, r.sync_interval) == (estimator, S)]
            )
        )
    known = [row for row in rows if row.boundary > 0]
    near = np.mean([within(row) for row in known]) if known else math.nan
    lines.append(
        f"all pairs with a boundary: {near:.1%} of {len(known)} within one grid step; at a fatal rate: "
        f"{sum(row.recommended >= row.fatal for row in rows)} of {len(rows)}"
    )
    for estimator in sorted({row.estimator for row in rows}):
        mine = [row for row in rows if row.estimator == estimator]
        made, updates = (np.median([getattr(row, name) for row in mine]) for name in ("runs", "updates"))
        ended = f"ended by the stop rule: {np.mean([row.sharp for row in mine]):.0%}"
        lines.append(f"{estimator}: median {made:.0f} runs, {updates:.0f} updates a replay; {ended}")
    return "\n".join(lines)


def within(row: Row) -> bool:
    """Whether the recommended rate lies within one grid step of the boundary."""
    return row.recommended > 0 and abs(math.log(row.recommended / row.boundary)) <= math.log(STEP) * (
        1 + 1e-9
    )


def _line(head: str, rows: Sequence[Row]) -> str:
    low, middle, high = np.quantile([row.recommended for row in rows], [0.05, 0.5, 0.95])
    first = rows[0]
    near = f"{np.mean([within(row) for row in rows]):.0%}" if first.boundary > 0 else "none"
    bad = np.mean([row.recommended >= row.fatal for row in rows])
    rates = f"{first.boundary:9.1e} {first.fatal:9.1e} {low:10.1e} {middle:9.1e} {high:9.1e}"
    return f"{head} {rates} {near:>14} {bad:6.0%}"


def read_rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    parse = {"str": str, "int": int, "float": float}
    with path.open(newline="") as file:
        return [
            Row(**{f.name: parse[str(f.type)](line[f.name]) for f in fields(Row)})
            for line in csv.DictReader(file)
        ]


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    new = not path.is_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--grid", type=Path, default=RESULTS / "dense_grid.csv")
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=MOST_ROUNDS, help="most rounds of a replay")
    parser.add_argument("--estimators", nargs="+", default=["none", "gmc"])
    parser.add_argument("--out", type=Path, default=RESULTS / "replay_grid.csv")
    parser.add_argument("--report", action="store_true", help="print the table of what is there")
    options = parser.parse_args()
    done = {(row.estimator, row.replay) for row in read_rows(options.out)}
    for estimator in [] if options.report else options.estimators:
        grid = read_grid(options.grid, estimator)
        for number in range(options.replays):
            if (estimator, number) not in done:
                append_rows(options.out, replay(grid, estimator, number, options.rounds))
    print(report(read_rows(options.out)))


if __name__ == "__main__":
    main()
