"""What each swept interval allows, and which pair makes the most progress."""

from __future__ import annotations

from collections.abc import Sequence

from calibrator.advice.request import AdviceRequest, ObservedGain, interval_within, max_lag
from calibrator.advice.rules import boundary_at, collapse_by, limits_at, lr_clock, round_down
from calibrator.advice.types import FrontierRow
from calibrator.laws.posterior import Posterior, rounded

USEFUL_SHARE = 0.5
"""Share of the best measured gain that a useful run makes; assumed."""


def floor_learning_rate(gains: Sequence[ObservedGain], horizon: int, warmup: int) -> float | None:
    """eta below which a run of `horizon` updates would learn nothing useful. [derived from measured gains]

    Assumed: progress depends on L alone, and a run is useful once it makes half of the gain that the best
    stable run of the sweep made. `None` when no run gained anything.
    """
    best = max((point.gain for point in gains), default=0.0)
    if best <= 0:
        return None
    enough = min(point.cumulative_lr for point in gains if point.gain >= USEFUL_SHARE * best)
    return rounded(enough / lr_clock(horizon, warmup))


def frontier_row(
    posterior: Posterior, effective_interval: int, request: AdviceRequest, *, largest_tested_rate: float
) -> FrontierRow | None:
    """The row of one swept S_eff, in the S of the intended schedule; `None` when that schedule has no such S, or the
    run would not be longer than it.

    eta never exceeds the largest rate that the sweep tested: above it the boundary rests on priors alone.
    """
    sync_interval = _interval(effective_interval, request)
    if sync_interval < 1 or _exceeds(effective_interval, sync_interval, request):
        return None
    horizon, warmup = request.updates_at(sync_interval), request.warmup
    if horizon <= effective_interval:
        return None
    limits = limits_at(posterior, effective_interval, horizon=horizon, risk=request.risk, warmup=warmup)
    eta = round_down(min(limits[request.rule], largest_tested_rate))
    floor = floor_learning_rate(request.gains, horizon, warmup)
    seconds = None if request.cost is None else request.cost.seconds_per_update(sync_interval)
    hours = None if seconds is None else seconds * horizon / 3600
    price = request.price_per_hour
    return FrontierRow(
        sync_interval=sync_interval,
        max_learning_rate=rounded(limits[request.rule]),
        learning_rate=eta,
        eta_max=boundary_at(posterior, effective_interval),
        collapse_probability=collapse_by(posterior, effective_interval, eta, horizon, warmup),
        seconds_per_update=None if seconds is None else rounded(seconds),
        progress_per_second=None if seconds is None else rounded(eta / seconds),
        useful=floor is None or eta >= floor,
        limits={rule: rounded(limit) for rule, limit in limits.items()},
        floor_learning_rate=floor,
        horizon=horizon,
        cumulative_lr=rounded(eta * lr_clock(horizon, warmup)),
        hours=None if hours is None else rounded(hours),
        price=None if hours is None or price is None else rounded(hours * price),
    )


def best_row(rows: Sequence[FrontierRow], request: AdviceRequest) -> FrontierRow | None:
    """The useful row with the most progress per second, or per update where seconds are unknown or not asked for.
    Ties go to the smaller interval.

    The synchronous row (largest lag 0) is taken only when no other is useful. `None` when none is.
    """
    useful = [row for row in rows if row.useful]
    stale = [row for row in useful if lag_of(row, request) > 0]
    return max(
        stale or useful, key=lambda row: (row.merit(request.objective), -row.sync_interval), default=None
    )


def lag_of(row: FrontierRow, request: AdviceRequest) -> int:
    """Largest lag in updates at this row under the schedule of the request, or as the runs had it."""
    realised = [effective for effective, S in request.realised.items() if row.sync_interval == S]
    if realised:
        return max(realised) - 1
    return max_lag(row.sync_interval, request.schedule, request.queued_cycles)


def _interval(effective_interval: int, request: AdviceRequest) -> int:
    """S of the intended run at this S_eff; 0 when its schedule has none."""
    if request.realised:
        return request.realised[effective_interval]
    return interval_within(effective_interval, request.schedule, request.queued_cycles)


def _exceeds(effective_interval: int, sync_interval: int, request: AdviceRequest) -> bool:
    """Whether the lag goes beyond the bound of the request."""
    if request.max_lag is None:
        return False
    lag = (
        effective_interval - 1
        if request.realised
        else max_lag(sync_interval, request.schedule, request.queued_cycles)
    )
    return lag > request.max_lag
