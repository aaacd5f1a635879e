"""One verdict for one run, from its curve alone. Pure: the same curve and settings give the same verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibrator.runlogs.curve import Curve, Series
from calibrator.verdicts import course
from calibrator.verdicts import fall as falls
from calibrator.verdicts import settings as rule
from calibrator.verdicts.course import Decline
from calibrator.verdicts.fall import Fall
from calibrator.verdicts.levels import Levels, levels_of
from calibrator.verdicts.settings import JudgeSettings
from calibrator.verdicts.stuck import Stuck, stuck
from calibrator.verdicts.track import Track, track_of, tracks_of_run
from calibrator.verdicts.types import Evidence, Interval, RunVerdict, Verdict
from calibrator.verdicts.witnesses import early_warnings

__all__ = ["JudgeSettings", "judge", "judge_so_far"]

MOST_DIPS = 20
"""Dips of one series that are listed one by one."""


@dataclass(frozen=True)
class _Account:
    """One account of the run: the reward (rollouts and probes), or a further series."""

    name: str
    levels: tuple[Levels, ...]
    track: Track
    fall: Fall | None


def judge(curve: Curve, settings: JudgeSettings) -> RunVerdict:
    """Verdict on a log that will not grow any more. Never raises on a curve of finite or missing numbers."""
    accounts = _accounts(curve, settings)
    event = _event(curve, accounts, settings, online=False)
    if event is not None:
        return event
    quiet = _untrained(curve, accounts, settings) or _degraded(accounts, settings)
    if quiet is not None:
        return _verdict(curve, quiet[0], [quiet[1]], settings, accounts)
    doubt = _doubt(curve, accounts, settings)
    frozen = stuck(curve, settings)
    if frozen is not None:
        doubt.append(_stuck(frozen))
    if _ended_early(curve, settings):
        return _verdict(
            curve, Verdict.INTERRUPTED, [_ended_evidence(curve, settings), *doubt], settings, accounts
        )
    if doubt:
        return _verdict(curve, Verdict.INCONCLUSIVE, doubt, settings, accounts)
    return _verdict(curve, Verdict.STABLE, [_kept_evidence(accounts[0])], settings, accounts)


def judge_so_far(curve: Curve, settings: JudgeSettings) -> RunVerdict | None:
    """Verdict on a run that still goes on, only when it is certain: collapsed or diverged, else None."""
    return look(curve, settings)[0]


def look(curve: Curve, settings: JudgeSettings) -> tuple[RunVerdict | None, bool]:
    """What `judge_so_far` says, and whether the run is down at present: certain or not."""
    if curve.updates == 0:
        return None, False
    accounts = _accounts(curve, settings)
    down = stuck(curve, settings) is not None or any(account.fall for account in accounts)
    return _event(curve, accounts, settings, online=True), down


def _accounts(curve: Curve, settings: JudgeSettings) -> list[_Account]:
    S = settings.sync_interval
    rewards = levels_of(_finite(curve.rewards), settings.reward_floor)
    probes = levels_of(_finite(curve.probes), settings.reward_floor) if curve.probes is not None else None
    if probes is None or not probes.size:
        accounts = [_account((rewards,), track_of(rewards, probe=False), S)]
    else:
        track, apart = tracks_of_run(rewards, probes)
        levels = (rewards, probes)
        accounts = (
            [_account(levels, track, S)]
            if apart is None
            else [_account((rewards,), track, S), _account((probes,), apart, S)]
        )
    for series in curve.others:
        further = levels_of(_finite(series), _other_floor(series, settings))
        accounts.append(_account((further,), track_of(further, probe=False), S))
    return accounts


def _account(levels: tuple[Levels, ...], track: Track, sync_interval: int) -> _Account:
    return _Account(levels[0].name, levels, track, falls.last_fall(track, sync_interval))


def _finite(series: Series) -> Series:
    keep = np.isfinite(series.value) & np.isfinite(series.version) & np.isfinite(series.seen)
    order = np.flatnonzero(keep)[np.argsort(series.version[keep], kind="stable")]
    return Series(
        series.name, series.version[order], series.value[order], series.se[order], series.seen[order]
    )


def _other_floor(series: Series, settings: JudgeSettings) -> float:
    known = series.value[np.isfinite(series.value)]
    lowest = float(np.min(known)) if known.size else 0.0
    return settings.series_floors.get(series.name, min(0.0, lowest))


# --- events ----------------------------------------------------------------------------------------


def _event(
    curve: Curve, accounts: list[_Account], settings: JudgeSettings, *, online: bool
) -> RunVerdict | None:
    if curve.non_finite_update is not None:
        return _non_finite(curve, settings)
    for account in accounts:
        if account.fall and _collapsed(account, account.fall, curve, settings, online=online):
            return _collapse(curve, account, account.fall, accounts, settings)
    frozen = stuck(curve, settings)
    if frozen is not None and frozen.for_good:
        onset = (frozen.low, frozen.high)
        return _verdict(curve, Verdict.COLLAPSED, [_stuck(frozen)], settings, accounts, onset=onset)
    return None


def _stuck(frozen: Stuck) -> Evidence:
    sentence = (
        f"For the last {frozen.updates} updates all answers to a prompt scored alike, {frozen.level:.3g} on average: "
        "no group has an advantage, so the policy cannot learn any more."
    )
    return Evidence(code="stuck", sentence=sentence, update=frozen.high)


def _collapsed(account: _Account, fall: Fall, curve: Curve, settings: JudgeSettings, *, online: bool) -> bool:
    if not account.track.clear or not _beyond_noise(account, fall):
        return False
    S = settings.sync_interval
    if not falls.is_cliff(fall, curve.updates, S):
        return False
    return falls.certain(fall, S) if online else falls.confirmed(fall, S)


def _beyond_noise(account: _Account, fall: Fall) -> bool:
    """Whether the fall is larger than sampling noise of reference and fallen level together."""
    noise = float(account.track.noise[fall.first])
    count = account.track.size - fall.first
    return fall.depth > rule.SIGMAS * noise * math.sqrt(1.0 / rule.REFERENCE_PROBES + 1.0 / count)


def _collapse(
    curve: Curve, account: _Account, fall: Fall, accounts: list[_Account], settings: JudgeSettings
) -> RunVerdict:
    track = account.track
    levels = account.levels[-1 if track.probe[fall.first] else 0]
    low, high = _last_onset(account, levels, fall)
    reference = float(track.best[fall.first])
    before, after = levels.floor + reference, levels.floor + reference * (1.0 - fall.depth)
    sentence = (
        f"{account.name} fell from {before:.3g} to {after:.3g} ({fall.depth:.0%} of the way to the floor "
        f"{levels.floor:g}) between versions {low:g} and {high:g} and stayed there for {fall.updates:g} "
        "updates."
    )
    evidence = [Evidence(code="reward_fell", sentence=sentence, update=high)]
    evidence += [_fell_too(other, other.fall) for other in accounts if other is not account and other.fall]
    evidence += early_warnings(curve, low, settings.sync_interval)
    return _verdict(curve, Verdict.COLLAPSED, evidence, settings, accounts, onset=(low, high))


def _last_onset(account: _Account, levels: Levels, fall: Fall) -> Interval:
    """The half-way point of the fall, or a fall from one good row to the next where earlier dips blur that."""
    track, (low, high) = account.track, falls.onset(account.track, fall)
    if levels.cliff is None or not fall.deep:
        return low, high
    good, bad = levels.cliff
    there = track.raw[(track.version == good) & (track.probe == track.probe[fall.first])]
    if not low <= good < bad or not there.size or there[0] > rule.RECOVERED:
        return low, high
    return good, bad if good >= high else min(bad, high)


def _fell_too(account: _Account, fall: Fall) -> Evidence:
    at = float(account.track.version[fall.first])
    return Evidence(code="series_fell", sentence=f"{account.name} fell too, at version {at:g}.", update=at)


def _non_finite(curve: Curve, settings: JudgeSettings) -> RunVerdict:
    """A collapse that was there before the first non-finite value is the event; else that value is."""
    at = curve.non_finite_update or 0
    earlier = _accounts(curve.until(at), settings)
    seen = Evidence(code="non_finite", sentence=f"Update {at} was not finite.", update=float(at))
    for account in earlier:
        if account.fall and _collapsed(account, account.fall, curve, settings, online=False):
            verdict = _collapse(curve, account, account.fall, earlier, settings)
            return verdict.model_copy(update={"evidence": [*verdict.evidence, seen]})
    evidence = [seen, *early_warnings(curve, float(at), settings.sync_interval)]
    onset = (float(at), float(at + 1))
    return _verdict(curve, Verdict.DIVERGED, evidence, settings, _accounts(curve, settings), onset=onset)


# --- no event --------------------------------------------------------------------------------------


_Quiet = tuple[Verdict, Evidence]


def _untrained(curve: Curve, accounts: list[_Account], settings: JudgeSettings) -> _Quiet | None:
    levels = [level for level in accounts[0].levels if level.size]
    if not levels or sum(float(level.rows.sum()) for level in levels) < rule.MIN_ROWS:
        return None
    if all(course.at_floor(level) for level in levels):
        return Verdict.UNTRAINED, Evidence(code="at_floor", sentence="The reward never left its floor.")
    dips = falls.dips(accounts[0].track)
    # Of two series the second one is the probe.
    moved = (
        course.reward_moved(level, probe=at > 0, dips=dips) for at, level in enumerate(accounts[0].levels)
    )
    if any(moved):
        return None
    if course.no_gradient(curve):
        return Verdict.UNTRAINED, Evidence(code="no_gradient", sentence="Every gradient is zero.")
    young = curve.updates < rule.FLAT_UPDATES or _ended_early(curve, settings)
    if young or course.policy_moved(curve):
        return None
    sentence = "The reward did not move by more than its noise: nothing shows that the run trained."
    return Verdict.UNTRAINED, Evidence(code="flat", sentence=sentence)


def _degraded(accounts: list[_Account], settings: JudgeSettings) -> _Quiet | None:
    for levels, decline in _declines(accounts):
        if course.has_lasted(decline, settings.sync_interval):
            sentence = _ends_below(levels, decline) + "."
            return Verdict.DEGRADED, Evidence(code="declined", sentence=sentence)
    return None


def _declines(accounts: list[_Account]) -> Iterator[tuple[Levels, Decline]]:
    """The series that end below their best, by more than noise and swings explain."""
    for account in accounts:
        dips = falls.dips(account.track)
        for levels in account.levels:
            decline = course.decline_of(levels, dips) if levels.cliff is None else None
            if decline is not None and course.has_declined(decline):
                yield levels, decline


def _ends_below(levels: Levels, decline: Decline) -> str:
    last, best = levels.reward(decline.last), levels.reward(decline.best)
    return f"{levels.name} ends at {last:.3g}, its best lasting level was {best:.3g}"


def _doubt(curve: Curve, accounts: list[_Account], settings: JudgeSettings) -> list[Evidence]:
    """Why the log cannot tell; empty when it can."""
    levels, found = accounts[0].levels, []
    versions = np.unique(np.concatenate([level.version for level in levels])).size
    rows = sum(float(level.rows.sum()) for level in levels)
    if versions < rule.MIN_VERSIONS or rows < rule.MIN_ROWS:
        sentence = f"{versions} policy versions in {rows:g} rows show no course."
        found.append(Evidence(code="too_short", sentence=sentence))
    elif curve.updates < rule.PARTIAL_UPDATES:
        sentence = f"In {curve.updates} updates a collapse could not be told from a dip."
        found.append(Evidence(code="too_short", sentence=sentence))
    elif not accounts[0].track.clear:
        found.append(
            Evidence(code="too_noisy", sentence="The noise of the reward hides a loss of half of its range.")
        )
    found += [
        _unconfirmed(account, since) for account in accounts if (since := _down_since(account)) is not None
    ]
    return found or [_unconfirmed_decline(levels, decline) for levels, decline in _declines(accounts)]


def _unconfirmed_decline(levels: Levels, decline: Decline) -> Evidence:
    sentence = (
        f"{_ends_below(levels, decline)}, for {decline.updates:g} updates: not enough to tell a dip from a decline. "
        "A longer run would settle it."
    )
    return Evidence(code="unconfirmed_decline", sentence=sentence)


def _down_since(account: _Account) -> tuple[float, float] | None:
    """First version and updates of a fall that the log ends in without deciding it."""
    fall, track = account.fall, account.track
    if fall is not None and track.clear:
        return float(track.version[fall.first]), fall.updates
    cliffs = [
        (levels.cliff[1], float(np.max(levels.seen)) - levels.cliff[1])
        for levels in account.levels
        if levels.cliff
    ]
    return cliffs[0] if cliffs else None


def _unconfirmed(account: _Account, since: tuple[float, float]) -> Evidence:
    version, updates = since
    sentence = (
        f"{account.name} was down at the end, since version {version:g}, for {updates:g} updates: "
        "not enough to tell a dip from a collapse. A longer run would settle it."
    )
    return Evidence(code="unconfirmed_fall", sentence=sentence, update=version)


def _ended_early(curve: Curve, settings: JudgeSettings) -> bool:
    if settings.ended == "stopped":
        return False
    if settings.horizon is None:
        return settings.ended == "killed"
    return curve.updates < settings.horizon


def _ended_evidence(curve: Curve, settings: JudgeSettings) -> Evidence:
    planned = f" of {settings.horizon}" if settings.horizon is not None else ""
    sentence = f"The run ended after {curve.updates}{planned} updates without a fall."
    return Evidence(code="ended_early", sentence=sentence, update=float(curve.updates))


def _kept_evidence(account: _Account) -> Evidence:
    parts = [
        f"{levels.name} from {levels.reward(float(levels.level[0])):.3g} "
        f"to {levels.reward(float(np.mean(levels.level[-max(1, levels.size // 8) :]))):.3g}"
        for levels in account.levels
        if levels.size
    ]
    return Evidence(code="kept", sentence="; ".join(parts) + ", never down for good.")


# --- the answer ------------------------------------------------------------------------------------


def _verdict(
    curve: Curve,
    verdict: Verdict,
    evidence: list[Evidence],
    settings: JudgeSettings,
    accounts: list[_Account],
    *,
    onset: Interval | None = None,
) -> RunVerdict:
    total = curve.cumulative_lr(curve.updates)
    at_onset = None
    if onset is not None:
        low, high = (curve.cumulative_lr(version) for version in onset)
        at_onset = (low, high) if math.isfinite(low) and math.isfinite(high) else None
    return RunVerdict(
        verdict=verdict,
        onset_updates=onset,
        cumulative_lr_at_onset=at_onset,
        updates=curve.updates,
        cumulative_lr_total=total if math.isfinite(total) else None,
        evidence=[*evidence, *_dip_evidence(accounts)],
        warnings=_warnings(curve, settings, accounts, total),
    )


def _dip_evidence(accounts: list[_Account]) -> list[Evidence]:
    return [evidence for account in accounts for evidence in _dips_of(account)]


def _dips_of(account: _Account) -> Iterator[Evidence]:
    dips = falls.dips(account.track)
    for dip in dips[:MOST_DIPS]:
        sentence = f"{account.name} lost {dip.depth:.0%} from version {dip.low:g}, back at {dip.high:g}."
        yield Evidence(code="dip", sentence=sentence, update=dip.low)
    if len(dips) > MOST_DIPS:
        sentence = f"{account.name} dipped {len(dips) - MOST_DIPS} times more."
        yield Evidence(code="dips", sentence=sentence, update=dips[MOST_DIPS].low)


def _warnings(curve: Curve, settings: JudgeSettings, accounts: list[_Account], total: float) -> list[str]:
    found = list(curve.warnings)
    if not math.isfinite(total) and not any("learning rates are null" in said for said in found):
        found.append("The log does not hold every learning rate: cumulative learning rates are unknown.")
    for account in accounts:
        for levels in account.levels:
            if levels.floor_moved and levels.size:
                found.append(
                    f"{levels.name} lies below the stated floor {settings.reward_floor:g}; "
                    f"{levels.floor:.4g} is used instead."
                )
    return found
