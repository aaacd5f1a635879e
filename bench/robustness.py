"""All estimators side by side on the embedded default: what each makes of stale rollouts, at rates nobody tuned.

`python bench/robustness.py [--folder runs/robustness] [--minutes 15] [--workers 2] [--out FILE.csv]` makes the next
runs for so many minutes and adds those that are finished to the table; call it again until it says that none is left. A
finished run is never made again, and one that was cut off goes on. `--report` makes no runs: it prints the tables of
docs/robustness.md and draws its figure.

S in {1, 8, 32, 128}, four learning rates, two seeds, nine estimators with their usual thresholds: 288 runs of 512
updates, unless the online rule ends them. A whole grid of one seed comes first, all estimators of a pair (S, eta)
beside each other, so that a part of the table compares them as well. The table has the columns of RUNS.csv, judged anew
from the curves at every call, and three of its own: the reward on 1024 held-out prompts before and after, where the end
is that of the run (0 for one that diverged), and the mean cap activation.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_args

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
sys.path.append(str(Path(__file__).resolve().parent.parent))

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.dense_grid import advanced, judged, name, places, row
from calibrator.cli.source import load_source
from calibrator.laws.fit import FittedStratum, fit_runs
from calibrator.laws.table import read_runs
from calibrator.laws.types import Estimate, Run
from calibrator.runlogs.append import COLUMNS
from calibrator.study.results import METRICS, SUMMARY
from calibrator.verdicts.types import Verdict
from reports import axes as ax_tools
from reports.numbers import rate
from reports.palette import LAW_LIGHT
from trainer.config import RunConfig
from trainer.names import EstimatorName
from trainer.summary import RunSummary

ESTIMATORS = get_args(EstimatorName)
INTERVALS = (1, 8, 32, 128)
RATES = (1.6e-4, 5e-4, 1.6e-3, 5e-3)
"""Half decades about the boundaries that the dense grid showed for `none` and `gmc` (docs/ground-truth.md)."""
SEEDS = (0, 1)
UPDATES = 512
"""Four cycles at S = 128; L of 0.08 at the lowest rate, as far as the dense grid reached."""
OWN_COLUMNS = ("held_out_before", "held_out", "cap_activation")
LETTERS = {Verdict.STABLE: "s", Verdict.COLLAPSED: "c", Verdict.DEGRADED: "d", Verdict.DIVERGED: "x"}
"""Any other verdict is a question mark."""


@dataclass(frozen=True)
class Outcome:
    """One run of the table."""

    run: Run
    held_out_before: float
    held_out: float
    """Mean reward on the held-out prompts at the end; 0, the task's floor, for a run that diverged."""
    cap_activation: float
    """Mean over updates."""


def configs() -> list[RunConfig]:
    """All runs in the order in which they are made."""
    study = load_source(None).config
    made = [
        study.run_config(
            estimator=estimator,
            sync_interval=interval,
            learning_rate=eta,
            updates=UPDATES,
            seed=seed,
            evaluate=True,
        )
        for seed, interval, eta, estimator in product(SEEDS, INTERVALS, RATES, ESTIMATORS)
    ]
    return [config.model_copy(update={"record_ratios": False}) for config in made]


def main() -> None:
    """Make runs for a while and write the table, or tell what is in it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/robustness"))
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench/results/robustness.csv"))
    parser.add_argument(
        "--report", action="store_true", help="print tables and draw the figure from the table"
    )
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    args = parser.parse_args()
    if args.report:
        report(read_outcomes(args.out), args.figures)
        return
    outcomes = made_outcomes(args.out, folder=args.folder, minutes=args.minutes, workers=args.workers)
    write_outcomes(outcomes, args.out)
    left = len(configs()) - len(outcomes)
    print(f"{len(outcomes)} runs are in {args.out}" + (f"; {left} are left" if left else ""))


def made_outcomes(out: Path, *, folder: Path, minutes: float, workers: int) -> list[Outcome]:
    """Make the next runs; all that are finished, with the numbers of their own from the table or from their folder."""
    grid = configs()
    known = {outcome.run.run: outcome for outcome in read_outcomes(out)} if out.exists() else {}
    curves = advanced(grid, out, folder=folder, minutes=minutes, workers=workers)
    folders = places(grid, folder)
    found = []
    for config in grid:
        run = name(config)
        if run in curves:
            before, after, acts = own_numbers(known[run] if run in known else folders[run])
            found.append(Outcome(judged(config, curves[run]), before, after, acts))
    return found


def own_numbers(source: Outcome | Path) -> tuple[float, float, float]:
    """Held-out reward before and after, and mean cap activation, of a run in the table or in its folder."""
    if isinstance(source, Outcome):
        return source.held_out_before, source.held_out, source.cap_activation
    summary = RunSummary.model_validate_json((source / SUMMARY).read_bytes())
    rows = [json.loads(line) for line in (source / METRICS).read_text().splitlines()]
    acts = [row["cap_activation"] for row in rows if "cap_activation" in row]
    return summary.held_out_before or 0.0, summary.held_out_after or 0.0, sum(acts) / max(1, len(acts))


def read_outcomes(path: Path) -> list[Outcome]:
    """The table; its own columns are read as texts that would separate strata, which they must not."""
    return [
        Outcome(run.model_copy(update={"strata": {}}), *(float(run.strata[key]) for key in OWN_COLUMNS))
        for run in read_runs(path)
    ]


def write_outcomes(outcomes: Sequence[Outcome], path: Path) -> None:
    """One row a run."""
    if not outcomes:
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=(*COLUMNS, *OWN_COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {**row(outcome.run), **{key: f"{getattr(outcome, key):.6g}" for key in OWN_COLUMNS}}
            for outcome in outcomes
        )


def report(outcomes: Sequence[Outcome], figures: Path) -> None:
    """Everything that docs/robustness.md shows."""
    by_estimator: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in sorted(outcomes, key=lambda found: ESTIMATORS.index(found.run.estimator)):
        by_estimator[outcome.run.estimator].append(outcome)
    print(
        f"{len(outcomes)} runs of {len(configs())}, {sum(o.run.updates for o in outcomes):,} updates; held-out"
    )
    print(f"reward before training {mean([o.held_out_before for o in outcomes]):.3f}\n")
    print_by_interval("Held-out reward at the best rate", by_estimator, best_rate)
    print_by_interval("Held-out reward, mean over the four rates", by_estimator, all_rates)
    print_by_interval("Largest rate at which all seeds are stable", by_estimator, largest_stable)
    print_by_interval("Verdicts, by rate", by_estimator, letters)
    print_by_interval("Cap activation at the second rate", by_estimator, activation)
    print_laws(fit_runs([outcome.run for outcome in outcomes]))
    figures.mkdir(parents=True, exist_ok=True)
    draw(by_estimator, figures / "robustness.svg")


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def by_rate(outcomes: Sequence[Outcome]) -> dict[float, list[Outcome]]:
    """Seeds of each rate, lowest rate first."""
    found: dict[float, list[Outcome]] = defaultdict(list)
    for outcome in sorted(outcomes, key=lambda o: (o.run.learning_rate, o.run.seed)):
        found[outcome.run.learning_rate].append(outcome)
    return found


def best_rate(outcomes: Sequence[Outcome]) -> str:
    """Best of the rates' means over the seeds, and which it is."""
    means = {eta: mean([o.held_out for o in seeds]) for eta, seeds in by_rate(outcomes).items()}
    best = max(means, key=lambda eta: means[eta])
    return f"{means[best]:.3f} ({rate(best)})"


def all_rates(outcomes: Sequence[Outcome]) -> str:
    """What one gets at a rate that was not chosen for this S."""
    return f"{mean([o.held_out for o in outcomes]):.3f}"


def largest_stable(outcomes: Sequence[Outcome]) -> str:
    """The largest rate below which, itself included, every run is stable."""
    stable = "none"
    for eta, seeds in by_rate(outcomes).items():
        if any(o.run.verdict is not Verdict.STABLE for o in seeds):
            break
        stable = rate(eta)
    return stable


def letters(outcomes: Sequence[Outcome]) -> str:
    """Verdicts of the seeds at each rate."""
    return " ".join(
        "".join(LETTERS.get(o.run.verdict, "?") for o in seeds) for seeds in by_rate(outcomes).values()
    )


def activation(outcomes: Sequence[Outcome]) -> str:
    """Mean over updates and seeds at a rate at which most runs live."""
    return f"{mean([o.cap_activation for o in outcomes if o.run.learning_rate == RATES[1]]):.2g}"


def print_by_interval(
    title: str, by_estimator: Mapping[str, Sequence[Outcome]], cell: Callable[[Sequence[Outcome]], str]
) -> None:
    """One row an estimator, one column an S."""
    print(f"{title}\n\n| estimator | " + " | ".join(f"S = {S}" for S in INTERVALS) + " |")
    print("|---" * (1 + len(INTERVALS)) + "|")
    for estimator, outcomes in by_estimator.items():
        parts = [[o for o in outcomes if o.run.sync_interval == S] for S in INTERVALS]
        print(f"| `{estimator}` | " + " | ".join(cell(part) if part else "" for part in parts) + " |")
    print()


def print_laws(fits: Sequence[FittedStratum]) -> None:
    """The boundary that the runs prefer, C, eta_0 and B of each estimator."""
    print("| estimator | events | boundary, weight | C (ceiling) | eta_0 (ceiling) | alpha (power) | B |")
    print("|---" * 7 + "|")
    for fit in sorted((found.summary for found in fits), key=lambda s: ESTIMATORS.index(s.estimator)):
        if fit.boundary is None or fit.budget is None:
            print(f"| `{fit.estimator}` | {fit.events} | {fit.findings[0].sentence} | | | | |")
            continue
        models = fit.boundary.models
        chosen = f"{fit.boundary.chosen}, {models[fit.boundary.chosen].weight:.2f}"
        known = fit.identifiable
        cells = (
            interval(models["ceiling"].C, known.C),
            interval(models["ceiling"].eta_0),
            interval(models["power"].alpha, known.alpha),
            interval(fit.budget.B, known.B),
        )
        print(f"| `{fit.estimator}` | {fit.events} | {chosen} | " + " | ".join(cells) + " |")


def interval(value: Estimate | None, identifiable: bool = True) -> str:
    """Estimate and 90 % interval; in brackets where the runs do not identify it and the prior speaks."""
    text = "" if value is None else f"{value.estimate:.2g} [{value.low:.2g}, {value.high:.2g}]"
    return text if identifiable else f"({text})"


def draw(by_estimator: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Held-out reward over S and eta, one panel an estimator; a cross for each seed that did not end stable."""
    style = {**ax_tools.STYLE, "svg.hashsalt": "robustness", "figure.facecolor": "white", "axes.grid": False}
    with rc_context(style):
        figure = Figure(figsize=(10.6, 9.6), layout="constrained")
        panels = [axes for line in figure.subplots(3, 3, squeeze=False) for axes in line]
        for axes, estimator in zip(panels, ESTIMATORS, strict=True):
            draw_panel(axes, by_estimator.get(estimator, ()))
            axes.set_title(estimator)
        panels[7].set_xlabel("sync interval S (updates)")
        panels[3].set_ylabel("learning rate η")
        figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")


def draw_panel(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    """Cells of S and eta, coloured and labelled with the mean over the seeds."""
    cells: dict[tuple[int, int], list[Outcome]] = defaultdict(list)
    for o in outcomes:
        cells[RATES.index(o.run.learning_rate), INTERVALS.index(o.run.sync_interval)].append(o)
    grid = [[mean([o.held_out for o in cells[y, x]]) for x in range(4)] for y in range(4)]
    axes.imshow(grid, origin="lower", cmap="Blues", vmin=0.0, vmax=1.6, aspect="auto")
    for (y, x), found in cells.items():
        crosses = "×" * sum(o.run.verdict is not Verdict.STABLE for o in found)
        if found:
            axes.text(
                x, y, f"{grid[y][x]:.2f}\n{crosses}", ha="center", va="center", color=LAW_LIGHT, fontsize=9
            )
    axes.set_xticks(range(4), [str(S) for S in INTERVALS])
    axes.set_yticks(range(4), [rate(eta) for eta in RATES])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    main()
