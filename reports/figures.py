"""The three figures of a report: phase diagram, collapse budget, reward curves. One panel per stratum.

matplotlib is imported when a figure is made, never with the module; no pyplot, hence no global state.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from calibrator.verdicts.types import Verdict
from reports import axes as ax_tools
from reports.bias_figures import describe_bias, describe_sawtooth, draw_bias, draw_sawtooth
from reports.cards.blocks import FigureName
from reports.curves import reward_on_clock
from reports.numbers import (
    LR_UPDATES,
    compact,
    count,
    fixed_places,
    interval,
    plural,
    rate,
    scientific,
    visible,
)
from reports.palette import LAW_LIGHT, MARKS, STAR_LIGHT
from reports.staleness import folded, longest_record
from reports.svg import Described, Mode, drawn, to_svg
from reports.view import Floats, RunView, StratumKey, StudyView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_POINTS = 12_000
"""Points of all reward curves of a study together; each curve gets its share, as means over bins."""
SIDE_BY_SIDE = 5
"""Replicates of one (S, eta) from which marks become smaller."""
LABELLED_EVENTS = 24
"""Up to so many onsets are labelled with their S."""
TITLES: dict[FigureName, str] = {
    "phase": "Stability boundary",
    "budget": "Collapse budget",
    "rewards": "Reward against cumulative learning rate",
    "sawtooth": "Staleness bias in one run",
    "bias": "Staleness bias by lag",
}


def figure_svg(view: StudyView, figure: FigureName, mode: Mode = "file") -> str:
    """One figure with a panel per stratum, standalone or for a page."""
    return _drawn(view, figure, keys_of(view, figure), figure, mode)


def keys_of(view: StudyView, figure: FigureName) -> list[StratumKey]:
    """Strata that have a panel in a figure: all, or those with the staleness probe."""
    keys = view.keys()
    if figure == "sawtooth":
        return [key for key in keys if longest_record(view, key)]
    return [key for key in keys if folded(view, key)] if figure == "bias" else keys


def panel_svgs(view: StudyView, figure: FigureName) -> list[str]:
    """The same figure for a page, one SVG per stratum, so that a narrow screen can stack them."""
    return [
        _drawn(view, figure, [key], f"{figure}-{i}", "page") for i, key in enumerate(keys_of(view, figure))
    ]


def figure_files(view: StudyView) -> dict[str, str]:
    """File name in the study folder, and content."""
    if not view.runs:
        return {}
    return {f"figures/{figure}.svg": figure_svg(view, figure) for figure in TITLES if keys_of(view, figure)}


def _drawn(view: StudyView, figure: FigureName, keys: list[StratumKey], slug: str, mode: Mode) -> str:
    title = f"{TITLES[figure]}: {', '.join(view.label(k) for k in keys)}"
    raw = _raw(view, figure, tuple(keys))
    return to_svg(raw, Described(slug, title, describe(view, figure, keys)), mode)


@lru_cache(maxsize=16)
def _raw(view: StudyView, figure: FigureName, keys: tuple[StratumKey, ...]) -> str:
    """The page and the file of a study with one stratum show the same drawing, which is made once."""
    # Without a home that it may write to, matplotlib says so on every command; figures do not suffer from it.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib as mpl

    draw = {
        "phase": _phase,
        "budget": _budget,
        "rewards": _rewards,
        "sawtooth": draw_sawtooth,
        "bias": draw_bias,
    }[figure]
    with mpl.rc_context(ax_tools.STYLE):
        canvas, panels = ax_tools.panels(len(keys))
        for key, panel in zip(keys, panels, strict=True):
            panel.set_title(visible(ax_tools.shorten(view.label(key))), loc="left", parse_math=False)
            draw(panel, view, key)
        return drawn(canvas)


def describe(view: StudyView, figure: FigureName, keys: list[StratumKey]) -> str:
    """Text alternative: what the figure shows, in numbers."""
    return " ".join(_describe_panel(view, figure, key) for key in keys)


def _describe_panel(view: StudyView, figure: FigureName, key: StratumKey) -> str:
    if figure in ("sawtooth", "bias"):
        say = describe_sawtooth if figure == "sawtooth" else describe_bias
        return f"{view.label(key)}: {say(view, key)}"
    runs, fit = view.runs_of(key), view.stratum(key)
    tally = Counter(r.verdict.verdict.value for r in runs)
    verdicts = ", ".join(f"{n} {word}" for word, n in tally.items())
    text = f"{view.label(key)}: {plural(len(runs), 'run')}: {verdicts or 'none'}."
    if figure == "phase" and fit is not None and fit.eta_max:
        rows = "; ".join(f"S = {e.sync_interval}: {interval(e.eta_max, scientific)}" for e in fit.eta_max)
        text += f" Fitted boundary eta_max with 90 % interval: {rows}."
    if figure != "phase" and fit is not None and fit.budget is not None:
        text += f" Collapse budget B = {interval(fit.budget.B)} {LR_UPDATES}."
    rec = view.recommendation
    if figure == "phase" and rec is not None and view.recommended_key() == key:
        text += f" Recommended: S = {rec.sync_interval}, eta = {rate(rec.learning_rate)}."
    return text


def _groups(runs: list[RunView]) -> Iterator[tuple[Verdict, list[RunView]]]:
    for verdict in Verdict:
        chosen = [r for r in runs if r.verdict.verdict is verdict]
        if chosen:
            yield verdict, chosen


# Phase diagram


def _phase(panel: Axes, view: StudyView, key: StratumKey) -> None:
    panel.set_xlabel("S_eff = 1 + largest lag (updates)")
    panel.set_ylabel("learning rate η")
    _draw_band(panel, view, key)
    dodged = _dodged(view.runs_of(key), _star(view, key))
    crowd = Counter((r.run.effective_interval, r.run.learning_rate) for r in view.runs_of(key))
    size = 46 * min(1.0, SIDE_BY_SIDE / max(crowd.values(), default=1))
    for verdict, runs in _groups(view.runs_of(key)):
        places = [dodged[id(r)] for r in runs]
        ax_tools.scatter(panel, places, [r.run.learning_rate for r in runs], verdict, size=max(size, 12))
    _draw_star(panel, view, key)
    swept = [r.run.sync_interval for r in view.runs]
    ax_tools.interval_ticks(panel, swept, [r.run.effective_interval for r in view.runs])
    ax_tools.log_y(panel, *ax_tools.limits(_rates_shown(view), 1.7), rate)
    ax_tools.legend(panel)


def _rates_shown(view: StudyView) -> list[float]:
    """All rates, the recommended one, and the boundaries as far as they are not far below everything that was run."""
    rates = [r.run.learning_rate for r in view.runs if r.run.learning_rate > 0]
    rates += [view.recommendation.learning_rate] if view.recommendation else []
    lowest = min(rates, default=0.0) / 4
    return [*rates, *(x for band in view.bands for x in band.median.tolist() if lowest < x < 1)]


def _dodged(runs: list[RunView], star: tuple[int, float] | None) -> dict[int, float]:
    """Runs at the same (S, eta) side by side, so that neither replicates nor the star hide one another."""
    cells: dict[tuple[int, float], list[RunView]] = defaultdict(list)
    for row in runs:
        cells[row.run.effective_interval, row.run.learning_rate].append(row)
    places = {}
    for cell, rows in cells.items():
        step = min(0.16, 0.5 / len(rows))
        for i, row in enumerate(rows):
            side = i - (len(rows) - 1) / 2
            gap = 0.2 * (1 if side >= 0 else -1) if cell == star else 0.0
            places[id(row)] = cell[0] * math.exp(step * side + gap)
    return places


def _draw_band(panel: Axes, view: StudyView, key: StratumKey) -> None:
    band = view.band(key)
    if band is None:
        return
    panel.fill_between(
        band.sync_interval,
        band.low,
        band.high,
        color=LAW_LIGHT,
        alpha=0.13,
        linewidth=0,
        label="90 % interval",
    )
    panel.plot(band.sync_interval, band.median, color=LAW_LIGHT, linewidth=1.6, label="boundary, median")


def _star(view: StudyView, key: StratumKey) -> tuple[int, float] | None:
    """Where the recommended point lies, if in this panel."""
    rec = view.recommendation
    return (1 + rec.max_lag, rec.learning_rate) if rec is not None and view.recommended_key() == key else None


def _draw_star(panel: Axes, view: StudyView, key: StratumKey) -> None:
    star = _star(view, key)
    if star is None:
        return
    panel.plot(
        [star[0]], [star[1]], linestyle="none", marker="*", markersize=15, color=STAR_LIGHT,
        markeredgecolor=LAW_LIGHT, markeredgewidth=0.8, label="recommended", zorder=6,
    )  # fmt: skip


# Collapse budget


def _budget(panel: Axes, view: StudyView, key: StratumKey) -> None:
    panel.set_xlabel("learning rate η")
    panel.set_ylabel("onset t (updates)")
    events = [r for r in view.runs_of(key) if r.verdict.onset_updates is not None]
    everything = [r for r in view.runs if r.verdict.onset_updates is not None]
    bottom, top = _onset_limits(everything)
    ax_tools.log_y(panel, bottom, top, count)
    ax_tools.log_x(panel, *ax_tools.limits([r.run.learning_rate for r in everything], 1.6), rate)
    _draw_budget_line(panel, view, key)
    _draw_onsets(panel, events, bottom)
    if not events:
        ax_tools.note(panel, "no run died")
    ax_tools.legend(panel)


def _onset_limits(runs: list[RunView]) -> tuple[float, float]:
    highs = [r.verdict.onset_updates[1] for r in runs if r.verdict.onset_updates]
    lows = [r.verdict.onset_updates[0] for r in runs if r.verdict.onset_updates]
    bottom, top = ax_tools.limits([x for x in (*lows, *highs) if x > 0], 1.8)
    return max(bottom, 0.5), max(top, 2.0)


def _draw_onsets(panel: Axes, events: list[RunView], bottom: float) -> None:
    places = _dodged_rates(events)
    for verdict, runs in _groups(events):
        mark = MARKS[verdict]
        x = [places[id(r)] for r in runs]
        low = [max(r.verdict.onset_updates[0], bottom) for r in runs if r.verdict.onset_updates]
        high = [r.verdict.onset_updates[1] for r in runs if r.verdict.onset_updates]
        panel.vlines(x, low, high, color=mark.light, linewidth=2.2, alpha=min(0.85, 25 / len(events)))
        ax_tools.scatter(panel, x, high, verdict, size=26)
    if len(events) <= LABELLED_EVENTS:
        _label_onsets(panel, events, places)


def _dodged_rates(events: list[RunView]) -> dict[int, float]:
    cells: dict[float, list[RunView]] = defaultdict(list)
    for row in sorted(events, key=lambda r: r.run.sync_interval):
        cells[row.run.learning_rate].append(row)
    return {
        id(row): eta * math.exp(min(0.18, 0.5 / len(rows)) * (i - (len(rows) - 1) / 2))
        for eta, rows in cells.items()
        for i, row in enumerate(rows)
    }


def _label_onsets(panel: Axes, events: list[RunView], places: dict[int, float]) -> None:
    """One label above the onsets of an eta: those of each run would hide one another."""
    cells: dict[float, list[RunView]] = defaultdict(list)
    for row in events:
        cells[row.run.learning_rate].append(row)
    for rows in cells.values():
        x = math.exp(sum(math.log(places[id(row)]) for row in rows) / len(rows))
        top = max(row.verdict.onset_updates[1] for row in rows if row.verdict.onset_updates)
        seen = sorted({row.run.effective_interval for row in rows})
        ax_tools.small_text(panel, x, top, f"S={', '.join(str(S) for S in seen)}")


def _draw_budget_line(panel: Axes, view: StudyView, key: StratumKey) -> None:
    fit = view.stratum(key)
    if fit is None or fit.budget is None:
        return
    eta: Floats = np.geomspace(*panel.get_xlim(), 40)
    B = fit.budget.B
    panel.fill_between(
        eta, B.low / eta, B.high / eta, color=LAW_LIGHT, alpha=0.13, linewidth=0, label="90 % interval"
    )
    panel.plot(eta, B.estimate / eta, color=LAW_LIGHT, linewidth=1.6, label="t = B / η, slope -1")
    rates = [
        r.run.learning_rate for r in view.runs_of(key) if r.verdict.onset_updates and r.run.learning_rate > 0
    ]
    if len(set(rates)) > 1:
        middle = math.exp(sum(map(math.log, rates)) / len(rates))
        beta = fit.budget.beta
        fitted = B.estimate / middle * (eta / middle) ** -beta.estimate
        label = f"fitted slope -{interval(beta, fixed_places)}"
        panel.plot(eta, fitted, color=LAW_LIGHT, linewidth=1.2, linestyle=(0, (4, 3)), label=label)


# Reward curves


def _rewards(panel: Axes, view: StudyView, key: StratumKey) -> None:
    ax_tools.log_x(panel, *_lr_limits(view), compact)
    panel.set_xlabel("cumulative learning rate L (LR × updates)")
    panel.set_ylabel("reward")
    points = max(8, min(160, CURVE_POINTS // max(1, len(view.runs))))
    runs = view.runs_of(key)
    alpha = 0.85 if len(runs) <= 30 else max(0.15, 25 / len(runs))
    for verdict, group in _groups(runs):
        curves = [reward_on_clock(row, points) for row in group]
        ax_tools.curves(panel, [c for c in curves if c[0].size], verdict, alpha)
        ax_tools.line_key(panel, verdict)
    panel.autoscale_view(scalex=False)
    _draw_budget_mark(panel, view, key)
    ax_tools.legend(panel)


def _draw_budget_mark(panel: Axes, view: StudyView, key: StratumKey) -> None:
    fit = view.stratum(key)
    if fit is None or fit.budget is None:
        return
    B = fit.budget.B
    panel.axvspan(B.low, B.high, color=LAW_LIGHT, alpha=0.13, linewidth=0)
    panel.axvline(B.estimate, color=LAW_LIGHT, linewidth=1.4, linestyle=(0, (4, 3)), label="budget B")


def _lr_limits(view: StudyView) -> tuple[float, float]:
    totals = [r.run.cumulative_lr for r in view.runs if r.run.cumulative_lr > 0]
    first = [r.run.learning_rate * r.run.effective_interval for r in view.runs if r.run.learning_rate > 0]
    top = max(totals, default=1.0)
    return min(max(min(first, default=0.0), top / 1e3), top / 10), top * 1.15
