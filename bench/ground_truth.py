"""What the dense grid says about the two laws: tables on stdout, figures into docs/figures.

`python bench/ground_truth.py [--grid bench/results/dense_grid.csv] [--figures docs/figures]`. About a minute.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from calibrator.laws.fit import FittedStratum, fit_runs
from calibrator.laws.posterior import Posterior, log_eta_max
from calibrator.laws.table import read_runs
from calibrator.laws.types import Estimate, Run
from calibrator.verdicts.types import Verdict
from reports import axes as ax_tools
from reports.numbers import rate
from reports.palette import LAW_LIGHT, MARKS

NARROW = 1e-3
"""Width of an onset that is read as a point, as a share of its L."""


def main() -> None:
    """Fit each estimator's runs, with onsets as intervals and as points."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--grid", type=Path, default=Path("bench/results/dense_grid.csv"))
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    args = parser.parse_args()
    runs = read_runs(args.grid)
    fits = fit_runs(runs)
    points = {fit.summary.estimator: fit for fit in fit_runs([as_point(run) for run in runs])}
    for fit in fits:
        print_outcomes(fit)
        print_laws(fit, points[fit.summary.estimator])
    args.figures.mkdir(parents=True, exist_ok=True)
    draw(fits, args.figures / "dense-grid-boundary.svg", draw_boundary)
    draw(fits, args.figures / "dense-grid-budget.svg", draw_budget)


def as_point(run: Run) -> Run:
    """The run with its onset where a log first shows it: the end of the interval."""
    high = run.cumulative_lr_onset_high
    if high is None or run.onset_high is None:
        return run
    low = (1 - NARROW) * high
    return run.model_copy(update={"cumulative_lr_onset_low": low, "onset_low": (1 - NARROW) * run.onset_high})


def cells(runs: Sequence[Run]) -> dict[tuple[int, float], list[Run]]:
    """The seeds of each (S, eta)."""
    found: dict[tuple[int, float], list[Run]] = defaultdict(list)
    for run in runs:
        found[run.sync_interval, run.learning_rate].append(run)
    return found


def print_outcomes(fit: FittedStratum) -> None:
    """Verdicts of the seeds at each point: s stable, c collapsed, d degraded, x diverged, ? any other."""
    letters = {Verdict.STABLE: "s", Verdict.COLLAPSED: "c", Verdict.DEGRADED: "d", Verdict.DIVERGED: "x"}
    grid = cells(fit.runs)
    rates = sorted({rate for _, rate in grid})
    print(f"\n{fit.summary.estimator}\n")
    print("| S | " + " | ".join(f"{rate:g}" for rate in rates) + " |")
    print("|---" * (1 + len(rates)) + "|")
    for S in sorted({S for S, _ in grid}):
        texts = ["".join(letters.get(run.verdict, "?") for run in grid.get((S, rate), [])) for rate in rates]
        print(f"| {S} | " + " | ".join(texts) + " |")


def print_laws(fit: FittedStratum, points: FittedStratum) -> None:
    """Boundaries side by side, and the budget with onsets as intervals and as points."""
    summary = fit.summary
    if summary.boundary is None or summary.budget is None:
        print("\nno boundary: " + " ".join(finding.sentence for finding in summary.findings))
        return
    print("\n| boundary | weight | C | alpha | eta_0 | sigma_C |\n|---|---|---|---|---|---|")
    for name, model in summary.boundary.models.items():
        values = (model.C, model.alpha, model.eta_0, model.sigma)
        print(f"| {name} | {model.weight:.2g} | " + " | ".join(map(_range, values)) + " |")
    print(
        "\n| onsets read as | B | gamma | beta | sigma_B | slope of log L on log S |\n|---|---|---|---|---|---|"
    )
    for name, found in (("intervals", fit), ("points", points)):
        budget = found.summary.budget
        if budget is not None:
            values = (budget.B, budget.gamma, budget.beta, budget.sigma)
            print(f"| {name} | " + " | ".join(map(_range, values)) + f" | {_slope(found.runs)} |")
    for finding in summary.findings:
        print(f"- {finding.code}: {finding.sentence}")


def _slope(runs: Sequence[Run]) -> str:
    """Least squares through the ends of the onsets, two standard errors: what a plain look would give."""
    dead = [run for run in runs if run.cumulative_lr_onset_high]
    x = np.log([run.effective_interval for run in dead])
    y = np.log([run.cumulative_lr_onset_high for run in dead])
    (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
    return f"{slope:.2f} ± {2 * math.sqrt(covariance[0, 0]):.2f}"


def _range(value: Estimate | None) -> str:
    return "" if value is None else f"{value.estimate:.3g} [{value.low:.3g}, {value.high:.3g}]"


def draw(fits: Sequence[FittedStratum], path: Path, panel: object) -> None:
    """One panel an estimator."""
    style = {**ax_tools.STYLE, "svg.hashsalt": "grid", "figure.facecolor": "white"}
    with rc_context(style):
        figure, panels = ax_tools.panels(len(fits))
        for axes, fit in zip(panels, fits, strict=True):
            axes.set_title(fit.summary.estimator)
            panel(axes, fit)  # type: ignore[operator]
            ax_tools.legend(axes)
        figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")


def draw_boundary(axes: Axes, fit: FittedStratum) -> None:
    """Verdicts over S and eta with the fitted boundary and a line of slope -1."""
    axes.set_xlabel("sync interval S (updates)")
    axes.set_ylabel("learning rate η")
    S = np.geomspace(1, 64, 60)
    if fit.posterior is not None:
        height = np.exp(log_eta_max(fit.posterior, S))
        low, middle, high = np.quantile(height, [0.05, 0.5, 0.95], axis=1)
        axes.fill_between(S, low, high, color=LAW_LIGHT, alpha=0.13, linewidth=0, label="90 % interval")
        axes.plot(S, middle, color=LAW_LIGHT, linewidth=1.6, label="boundary, median")
        axes.plot(
            S, _through(fit.posterior, 64.0) / S, color=LAW_LIGHT, linestyle="--", linewidth=1, label="∝ 1/S"
        )
    for verdict in Verdict:
        places = [
            (run.sync_interval * math.exp(0.12 * (run.seed - 1)), run.learning_rate)
            for run in fit.runs
            if run.verdict is verdict
        ]
        if places:
            ax_tools.scatter(axes, [x for x, _ in places], [y for _, y in places], verdict, size=26)
    ax_tools.interval_ticks(axes, sorted({run.sync_interval for run in fit.runs}))
    ax_tools.log_y(axes, *ax_tools.limits([run.learning_rate for run in fit.runs], 1.7), rate)


def _through(posterior: Posterior, S: float) -> float:
    return S * float(np.exp(np.median(log_eta_max(posterior, S))))


def draw_budget(axes: Axes, fit: FittedStratum) -> None:
    """L at onset over S: the interval of each death, and its end as a point."""
    axes.set_xlabel("sync interval S (updates)")
    axes.set_ylabel("cumulative learning rate at onset")
    dead = sorted(
        (run for run in fit.runs if run.cumulative_lr_onset_high), key=lambda run: run.learning_rate
    )
    by_interval: dict[int, list[Run]] = defaultdict(list)
    for run in dead:
        by_interval[run.sync_interval].append(run)
    color = MARKS[Verdict.COLLAPSED].light
    bottom = 0.5 * min(run.cumulative_lr_onset_high or math.inf for run in dead)
    for S, group in by_interval.items():
        x = S * np.exp(np.linspace(-0.45, 0.45, len(group)))
        low = [max(run.cumulative_lr_onset_low or 0.0, bottom) for run in group]
        high = [run.cumulative_lr_onset_high or math.nan for run in group]
        axes.vlines(x, low, high, color=color, linewidth=1.8, alpha=0.8)
        axes.plot(x, high, linestyle="none", marker="o", markersize=3, color=color)
    budget = fit.summary.budget
    if budget is not None:
        axes.axhspan(budget.B.low, budget.B.high, color=LAW_LIGHT, alpha=0.13, linewidth=0, label="B, 90 %")
        axes.axhline(budget.B.estimate, color=LAW_LIGHT, linewidth=1.6, label="B")
    ax_tools.interval_ticks(axes, sorted(by_interval))
    top = max(run.cumulative_lr_onset_high or 0.0 for run in dead)
    ax_tools.log_y(axes, bottom, 1.5 * top, rate)


if __name__ == "__main__":
    main()
