"""Colours and marks of the figures. Shape and colour both carry the verdict, for the colour-blind too."""

from __future__ import annotations

from dataclasses import dataclass

from calibrator.verdicts.types import Verdict


@dataclass(frozen=True)
class Mark:
    """How a verdict is drawn. `light` and `dark` are the colours on a white and on a dark page."""

    light: str
    dark: str
    marker: str
    """matplotlib marker."""
    filled: bool = True


MARKS: dict[Verdict, Mark] = {
    Verdict.STABLE: Mark("#0072b2", "#5ab4f0", "o"),
    Verdict.COLLAPSED: Mark("#d1495b", "#ff8a8f", "X"),
    Verdict.DIVERGED: Mark("#8f2d86", "#e29be0", "D"),
    Verdict.DEGRADED: Mark("#b07a00", "#f0c14b", "v"),
    Verdict.UNTRAINED: Mark("#7b8490", "#98a2ae", "o", filled=False),
    Verdict.INCONCLUSIVE: Mark("#7b8491", "#98a2af", "s", filled=False),
    Verdict.INTERRUPTED: Mark("#7b8492", "#98a2b0", "^", filled=False),
}

LAW_LIGHT, LAW_DARK = "#1f2a3a", "#dfe6ee"
STAR_LIGHT, STAR_DARK = "#e0a100", "#ffd24d"
SERIES = (
    ("#0b6fb8", "#62b6f2"),
    ("#c4453c", "#ff8f84"),
    ("#2c8a5b", "#5fcf98"),
    ("#8a4fb0", "#cf9bf0"),
    ("#9a6a00", "#e8b94a"),
    ("#4f6272", "#a9b8c6"),
)
"""(light, dark) of curves that are no verdict: settings side by side."""


def pairs() -> list[tuple[str, str, str]]:
    """(name of the CSS variable, light, dark) of every colour that a page may change."""
    rows = [(f"--v-{verdict.value}", mark.light, mark.dark) for verdict, mark in MARKS.items()]
    rows += [(f"--series-{i}", light, dark) for i, (light, dark) in enumerate(SERIES)]
    return [*rows, ("--law", LAW_LIGHT, LAW_DARK), ("--star", STAR_LIGHT, STAR_DARK)]
