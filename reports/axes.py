"""Axes in the look of the reports: thin, few ticks with plain labels, a small legend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrator.runlogs.curve import Floats
from calibrator.verdicts.types import Verdict
from reports.palette import MARKS
from reports.svg import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 5.3, 4.4
"""Inches; 72 units of the SVG each."""
COLUMNS = 2
MOST_TICKS = 7
TICK_GAP = math.log(1.4)
"""Smallest distance between two ticks of a sync interval, in log S, at which their labels do not touch."""
LONGEST_TITLE = 60
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.labelsize": 10.5,
    "axes.linewidth": 0.8,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.grid": True,
    "figure.facecolor": "none",
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.labelspacing": 0.35,
    "legend.columnspacing": 1.6,
    "legend.handletextpad": 0.6,
    "legend.borderaxespad": 0.0,
    "path.simplify": True,
}


def panels(n: int) -> tuple[Figure, list[Axes]]:
    """A figure with `n` panels, two a row, without pyplot."""
    from matplotlib.figure import Figure

    n = max(n, 1)
    columns = min(n, COLUMNS)
    rows = math.ceil(n / columns)
    figure = Figure(figsize=(PANEL_WIDTH * columns, PANEL_HEIGHT * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    cells = [cell for row in grid for cell in row]
    for cell in cells[n:]:
        cell.set_axis_off()
    return figure, cells[:n]


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 3]}..."


def log_x(panel: Axes, low: float, high: float, form: Callable[[float], str]) -> None:
    """Logarithmic abscissa with few, plainly written ticks."""
    panel.set_xscale("log")
    panel.set_xlim(low, high)
    _log_ticks(panel.xaxis, low, high, form)


def log_y(panel: Axes, low: float, high: float, form: Callable[[float], str]) -> None:
    """Logarithmic ordinate with few, plainly written ticks."""
    panel.set_yscale("log")
    panel.set_ylim(low, high)
    _log_ticks(panel.yaxis, low, high, form)


def _log_ticks(axis: Axis, low: float, high: float, form: Callable[[float], str]) -> None:
    from matplotlib.ticker import NullLocator

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) <= MOST_TICKS:
            break
    ticks = ticks[:: math.ceil(len(ticks) / MOST_TICKS)] if ticks else ticks
    axis.set_ticks(ticks, [form(t) for t in ticks])
    axis.set_minor_locator(NullLocator())


def interval_ticks(panel: Axes, swept: Sequence[int], realised: Sequence[int]) -> None:
    """Ticks at the swept intervals, then at other realised ones where there is room, as whole numbers."""
    from matplotlib.ticker import NullLocator

    panel.set_xscale("log")
    ticks: list[int] = []
    for each in [*sorted(set(swept), reverse=True), *sorted(set(realised), reverse=True)]:
        if all(abs(math.log(each / tick)) >= TICK_GAP for tick in ticks):
            ticks.append(each)
    ticks = sorted(ticks) or [1]
    every = [*swept, *realised] or [1]
    panel.set_xlim(min(every) / 1.7, max(every) * 1.7)
    panel.set_xticks(ticks, [f"{t:,}" for t in ticks])
    panel.xaxis.set_minor_locator(NullLocator())


def limits(values: Sequence[float], margin: float) -> tuple[float, float]:
    """Limits of a logarithmic axis: a factor wider than the values on both sides, and at least a decade."""
    positive = [v for v in values if v > 0 and math.isfinite(v)] or [1e-3]
    low, high = min(positive) / margin, max(positive) * margin
    short = max(0.0, 1 - math.log10(high / low)) / 2
    return low / 10**short, high * 10**short


def scatter(panel: Axes, x: Sequence[float], y: Sequence[float], verdict: Verdict, size: float = 46) -> None:
    mark = MARKS[verdict]
    panel.scatter(
        x,
        y,
        s=size,
        marker=mark.marker,
        facecolors=mark.light if mark.filled else "none",
        edgecolors=mark.light,
        linewidths=1.2 if not mark.filled else 0.6,
        label=verdict.value,
        zorder=4,
    )


def curves(panel: Axes, lines: Sequence[tuple[Floats, Floats]], verdict: Verdict, alpha: float) -> None:
    """Many lines of one verdict, each ended by its mark, as one collection: hundreds would be slow one by one."""
    from matplotlib.collections import LineCollection

    if not lines:
        return
    mark = MARKS[verdict]
    segments = [np.column_stack(line) for line in lines]
    panel.add_collection(LineCollection(segments, colors=mark.light, alpha=alpha, linewidths=1.2))
    ends = np.array([segment[-1] for segment in segments])
    panel.plot(
        ends[:, 0], ends[:, 1], linestyle="none", color=mark.light, marker=mark.marker, markersize=4.5,
        markerfacecolor=mark.light if mark.filled else "none", alpha=alpha, label="_",
    )  # fmt: skip


def legend(panel: Axes) -> None:
    """Below the panel, where it hides no data."""
    if panel.get_legend_handles_labels()[1]:
        panel.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.17), ncols=3)


def line_key(panel: Axes, verdict: Verdict) -> None:
    """Legend entry of a verdict's curves, with the mark that ends them."""
    mark = MARKS[verdict]
    face = mark.light if mark.filled else "none"
    panel.plot(
        [],
        [],
        color=mark.light,
        marker=mark.marker,
        markersize=4.5,
        markerfacecolor=face,
        label=verdict.value,
    )


def small_text(panel: Axes, x: float, y: float, text: str) -> None:
    """A label above a point."""
    panel.annotate(
        text, (x, y), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=7.5, parse_math=False
    )


def note(panel: Axes, text: str) -> None:
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", parse_math=False)
