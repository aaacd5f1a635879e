"""What the online rule would have said of a finished run, and when."""

from __future__ import annotations

from collections.abc import Sequence

from calibrator.runlogs.curve import Curve
from calibrator.verdicts.judge import judge_so_far, look
from calibrator.verdicts.settings import JudgeSettings
from calibrator.verdicts.types import RunVerdict


def first_call(
    curve: Curve, settings: JudgeSettings, looks: Sequence[int], *, thin: int = 1
) -> tuple[int, RunVerdict] | None:
    """The first of the `looks` (counts of updates, ascending) after which the run would have been ended; or None.

    With `thin` only every so many looks are made while the run is up, and those left out before the first that finds it
    down: what is certain has been down for long, so nothing is missed where `thin` looks take less time than that.
    """
    made = 0
    while made < len(looks):
        at = min(made + thin, len(looks)) - 1
        verdict, down = look(curve.until(looks[at]), settings)
        if down or verdict is not None:
            for updates in looks[made:at]:
                earlier = judge_so_far(curve.until(updates), settings)
                if earlier is not None:
                    return updates, earlier
        if verdict is not None:
            return looks[at], verdict
        made = at + 1
    return None
