"""What the online rule would have said of a finished run, and when."""

from __future__ import annotations

from collections.abc import Iterable

from calibrator.runlogs.curve import Curve
from calibrator.verdicts.judge import judge_so_far
from calibrator.verdicts.settings import JudgeSettings
from calibrator.verdicts.types import RunVerdict


def first_call(curve: Curve, settings: JudgeSettings, looks: Iterable[int]) -> tuple[int, RunVerdict] | None:
    """The first of the `looks` (counts of updates, ascending) after which the run would have been ended; or None."""
    for updates in looks:
        verdict = judge_so_far(curve.until(updates), settings)
        if verdict is not None:
            return updates, verdict
    return None
