"""A fall from one row to the next that the scatter of the rows before it cannot explain.

One-row dips, and the fall itself, look like noise to whatever measures the noise from differences of neighbours: a
few of them in a short log hide a collapse in a standard error that is their own work. So good and fallen rows are told
apart first, where a clear gap lies between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter

from calibrator.runlogs.curve import Floats
from calibrator.verdicts import settings as rule


@dataclass(frozen=True)
class Cliff:
    """Rows, in order of version, that are good now and then, and then never again."""

    up: np.ndarray
    """Whether a row is good; shape (rows,)."""
    last: int
    """Last good row."""

    @property
    def first(self) -> int:
        """First row of the lasting fall."""
        return self.last + 1


def cliff_of(value: Floats, noise: Callable[[np.ndarray], float]) -> Cliff | None:
    """The cliff that rewards above the floor end in, if any; `noise` measures that of the chosen rows alone.

    It must be improbable that so many last rows are down if rows are down as often as before; good and fallen rows must
    be apart by more than their noise, and their means by far more.
    """
    if value.size < 2 * rule.PERSIST_VERSIONS:
        return None
    up = value > _divide(value)
    good = np.flatnonzero(up)
    if good.size < rule.PERSIST_VERSIONS:
        return None
    last = int(good[-1])
    fallen = value.size - last - 1
    before = last + 1 - int(good[0])
    dips = before - good.size
    # The rule of succession: a row that was never down before may be down once.
    by_chance = ((dips + 1) / (before + 2)) ** fallen
    if fallen < rule.PERSIST_VERSIONS or by_chance > rule.CHANCE:
        return None
    # Rows before the first good one are on their way up.
    down = value[good[0] :][~up[good[0] :]]
    sigma = noise(up)
    alike = sigma <= 0.0 and float(np.ptp(down)) == 0.0
    if dips and alike and by_chance > rule.CHANCE_ALIKE:
        return None
    if float(np.min(value[up]) - np.max(down)) < rule.GAP_SIGMAS * sigma:
        return None
    apart = float(np.mean(value[up]) - np.mean(value[last + 1 :]))
    far = rule.SIGMAS * sigma * (1.0 / good.size + 1.0 / fallen) ** 0.5
    return Cliff(up, last) if apart > far else None


def _divide(value: Floats) -> float:
    """Middle of the widest gap between two rewards that parts what counts as good from what is near the floor."""
    level = float(np.max(median_filter(value, 3, mode="nearest")))
    ordered = np.sort(value)
    middle, width = 0.5 * (ordered[1:] + ordered[:-1]), np.diff(ordered)
    fits = (middle >= 0.5 * (1.0 - rule.DEEP) * level) & (middle <= (1.0 - rule.RECOVERED) * level)
    return float(middle[np.argmax(np.where(fits, width, -1.0))]) if fits.any() else np.inf
