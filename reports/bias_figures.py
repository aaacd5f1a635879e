"""The two figures of the staleness bias: one run probe by probe, and all runs folded over their cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reports import axes as ax_tools
from reports.numbers import count, plural, rate, scientific
from reports.palette import LAW_LIGHT, SERIES
from reports.staleness import Folded, Setting, folded, longest_record
from reports.view import StratumKey, StudyView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CYCLES = 6
"""Cycles of the one run that are drawn: more would be a comb."""


def draw_sawtooth(panel: Axes, view: StudyView, key: StratumKey) -> None:
    """Norm of the bias over that of the gradient, by update; the sign is that of the squared bias."""
    panel.set_xlabel("update")
    panel.set_ylabel("bias / gradient")
    found = longest_record(view, key)
    if found is None:
        ax_tools.note(panel, "no run was stale")
        return
    row, bias = found
    S = row.run.sync_interval
    until = min(row.run.updates, max(MOST_CYCLES * S, float(bias.update[: 2 * MOST_CYCLES].max())))
    keep = (bias.update <= until) & np.isfinite(bias.bias_sq)
    square = bias.bias_sq[keep] / abs(_mean_square(bias.full_grad_sq))
    share = np.sign(square) * np.sqrt(np.abs(square))
    for at in range(0, int(until) + 1, S):
        panel.axvline(at, color=LAW_LIGHT, alpha=0.25, linewidth=0.8)
    panel.axhline(0, color=LAW_LIGHT, linewidth=0.8)
    label = f"trial {row.trial}: S = {count(S)}, η = {rate(row.run.learning_rate)}"
    panel.plot(
        bias.update[keep], share, color=SERIES[0][0], marker="o", markersize=3.5, linewidth=1.2, label=label
    )
    ax_tools.legend(panel)


def draw_bias(panel: Axes, view: StudyView, key: StratumKey) -> None:
    """Norm of the bias by lag; at most as many curves as there are colours."""
    panel.set_xlabel("lag (updates since synchronization)")
    panel.set_ylabel("norm of the bias")
    for (setting, curve), (light, _) in zip(_chosen(folded(view, key)), SERIES, strict=False):
        gaps = np.nan_to_num(np.abs(np.array([curve.bias - curve.low, curve.high - curve.bias])))
        panel.errorbar(
            curve.lag, curve.bias, yerr=gaps, color=light, marker="o", markersize=3.5, linewidth=1.2,
            elinewidth=0.8, label=f"S = {count(setting[0])}, η = {rate(setting[1])}",
        )  # fmt: skip
    panel.set_ylim(bottom=0)
    ax_tools.legend(panel)


def _chosen(curves: dict[Setting, Folded]) -> list[tuple[Setting, Folded]]:
    """As many settings as there are colours, evenly from the smallest to the largest; S = 1 is never stale."""
    stale = [setting for setting in sorted(curves) if setting[0] > 1] or sorted(curves)
    places = np.unique(np.linspace(0, len(stale) - 1, len(SERIES)).round().astype(int))
    return [(stale[i], curves[stale[i]]) for i in places]


def describe_sawtooth(view: StudyView, key: StratumKey) -> str:
    """Text alternative."""
    found = longest_record(view, key)
    if found is None:
        return "no run was stale."
    row, bias = found
    return (
        f"trial {row.trial}, S = {count(row.run.sync_interval)}, eta = {rate(row.run.learning_rate)}: "
        f"{plural(bias.update.size, 'probe')}; mean squared bias {scientific(_mean_square(bias.bias_sq))}, mean "
        f"squared gradient {scientific(_mean_square(bias.full_grad_sq))}."
    )


def describe_bias(view: StudyView, key: StratumKey) -> str:
    """Text alternative."""
    return "; ".join(
        f"S = {count(S)}, eta = {rate(eta)}: bias {scientific(curve.bias[0])} at lag {count(curve.lag[0])}, "
        f"{scientific(curve.bias[-1])} at lag {count(curve.lag[-1])}"
        for (S, eta), curve in _chosen(folded(view, key))
    )


def _mean_square(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")
