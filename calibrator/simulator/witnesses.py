"""What a log tells beside the reward: plausible courses that warn early, or look perfect after death."""

from __future__ import annotations

import numpy as np

from calibrator.runlogs.curve import Floats
from calibrator.simulator.policy import Stream

LOG_RATIO = 400.0
"""Mean absolute log-ratio per unit of L since the synchronization, of a policy that moves as it should."""


def witnesses(
    stream: Stream, *, level: Floats, x: Floats, behaviour: np.ndarray, rates: Floats
) -> dict[str, Floats]:
    """Per update, [T]: from the levels and displacements [T + 1], behaviour versions [T] and applied rates [T].

    Shapes only: cosine and log-ratio rise as the policy drifts; after death gradient, log-ratio and ESS are calm.
    """
    updates = rates.size
    noise = stream.standard_normal((5, updates))
    learner, clock = level[:updates], np.concatenate(([0.0], np.cumsum(rates)))
    moved = clock[:updates] - clock[behaviour]
    drifting = np.clip(x[:updates], 0.0, 1.0)
    signal = np.clip(4.0 * level[behaviour] * (1.0 - level[behaviour]), 0.0, 1.0)
    ratio = LOG_RATIO * moved * (0.2 + signal) * (1.0 + 4.0 * drifting**4) * np.exp(0.2 * noise[0])
    return {
        "entropy": (0.05 + 0.6 * (1.0 - learner)) * np.exp(0.05 * noise[1]),
        "grad_norm": signal * np.exp(0.3 * noise[2]),
        "grad_cosine": np.clip(0.1 + 0.7 * drifting**4 * (x[:updates] < 1.0) + 0.08 * noise[3], -1.0, 1.0),
        "ess": np.exp(-(np.minimum(ratio, 5.0) ** 2)),
        "log_ratio_abs_mean": ratio,
        "response_length": 8.0 * np.exp(0.05 * noise[4]) * (1.0 + 3.0 * np.clip(drifting - 0.8, 0.0, 1.0)),
        "lag_max": np.arange(updates) - behaviour.astype(float),
    }
