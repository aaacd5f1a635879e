"""How often healthy runs are called dead, how soon dead ones are found, and how every odd shape is judged.

`python bench/verdicts.py [--part stable dead dips shapes] [--runs 2000] [--seed 1] [--table FILE.csv]`.
Simulated runs (calibrator.simulator) of 1000 updates with 8 x 16 rollouts, an autocorrelated level, and dips that
recover; S, probes, rates, levels and memory are drawn anew for every run. The online rule looks where a running trial
does: after every eighth update, where a probe stands if there are probes. Limits are Clopper-Pearson, 95 %, one-sided.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import beta

# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from calibrator.runlogs.curve import Curve
from calibrator.simulator.policy import Death, Habits
from calibrator.simulator.runs import Setting, Simulated, simulate
from calibrator.simulator.shapes import SHAPES, odd
from calibrator.verdicts.judge import JudgeSettings, judge
from calibrator.verdicts.watch import first_call

UPDATES = 1000
LOOK = 8
THIN = 3
"""Of three looks one is made while the run is up: what is certain was down for five before (see `first_call`)."""
INTERVALS = (1, 2, 4, 8, 16, 32, 64)
PARTIAL = 0.2
"""Share of the collapses that stop at a twentieth to a third of the level."""
DIP_UPDATES = (8, 16, 24, 32, 40, 48, 64, 96, 128)

Row = tuple[str, str, str, str]
"""Part, what, value, further."""


@dataclass(frozen=True)
class Drawn:
    """One simulated run."""

    curve: Curve
    settings: JudgeSettings
    onset: float
    """Version at which the level began to fall; NaN for none."""
    half: float
    """Version at which it had lost half of what it lost."""
    kind: str


def drawn(part: str, seed: int, index: int, *, dies: bool = False) -> Drawn:
    """Run `index` of a part: a function of both and of the seed."""
    rng = np.random.default_rng([seed, index, *part.encode()])
    S, probed = int(rng.choice(INTERVALS)), bool(rng.integers(2))
    floor, range_ = float(rng.choice([0.0, -1.0, -4.0])), float(rng.choice([1.0, 3000.0]))
    partial = dies and rng.random() < PARTIAL
    setting = Setting(
        updates=UPDATES,
        S=S,
        learning_rate=float(10 ** rng.uniform(-6, -2)),
        warmup=int(rng.choice([0, 10, 100])),
        decay=float(rng.choice([0.0, 1.0])),
        spread=float(rng.uniform(1, 10)),
        probe_every=LOOK if probed else 0,
        floor=floor,
        marks=floor + range_,
        death=Death(residue=(0.05, 0.35)) if partial else Death(),
    )
    last = UPDATES - max(3 * S, 64) - LOOK
    at = np.array([float(rng.integers(20, last))]) if dies else None
    batch = simulate(setting, [int(rng.integers(2**62))], deaths=at)
    settings = JudgeSettings(
        sync_interval=S, reward_floor=floor, full_marks=floor + range_, horizon=UPDATES, ended="finished"
    )
    kind = f"{'partial' if partial else 'deep'}, {'probes' if probed else 'rollouts only'}"
    return Drawn(batch.curve(0), settings, float(batch.onset[0]), half_way(batch), kind)


def half_way(batch: Simulated) -> float:
    """First version past the middle between the levels before the onset and after the fall; NaN without an onset."""
    if np.isnan(batch.onset[0]):
        return np.nan
    at, level = int(batch.onset[0]), batch.level[0]
    middle = 0.5 * (level[at - 1] + np.median(level[at + 32 :]))
    return float(at + np.argmax(level[at:] <= middle))


def limits(hits: int, total: int) -> tuple[float, float]:
    """Lower and upper limit of a share, one-sided 95 % each (Clopper and Pearson 1934)."""
    low = float(beta.ppf(0.05, hits, total - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.95, hits + 1, total - hits)) if hits < total else 1.0
    return low, high


def stable(runs: int, seed: int) -> Iterator[Row]:
    """Part (a): healthy runs with dips that recover."""
    called, ended, offline = [], 0, Counter[str]()
    for index in range(runs):
        run = drawn("stable", seed, index)
        online = first_call(run.curve, run.settings, range(LOOK, UPDATES + 1, LOOK), thin=THIN)
        verdict = judge(run.curve, run.settings).verdict
        offline[verdict.value] += 1
        ended += online is not None
        if online is not None or verdict.is_event:
            called.append(index)
        progress("stable", index, runs, f"called {called}")
    for name, count in (
        ("ended online", ended),
        ("collapsed offline", offline["collapsed"]),
        ("either", len(called)),
    ):
        yield "stable", name, f"{count} of {runs}", f"upper limit {limits(count, runs)[1]:.2%}"
    yield "stable", "verdicts offline", told(offline), ""


def dead(runs: int, seed: int) -> Iterator[Row]:
    """Part (b): collapses at a random version."""
    late, early = Counter[str](), Counter[str]()
    total, delays, wrong = Counter[str](), [], []
    inside, widths = 0, []
    for index in range(runs):
        run = drawn("dead", seed, index, dies=True)
        limit = run.onset + max(3 * run.settings.sync_interval, 64)
        looks = [look for look in range(LOOK, UPDATES + 1, LOOK) if look <= limit]
        online = first_call(run.curve, run.settings, looks, thin=THIN)
        total[run.kind] += 1
        if online is None or online[0] < run.onset:
            (late if online is None else early)[run.kind] += 1
            wrong.append(index)
        else:
            delays.append(online[0] - run.onset)
            low, high = online[1].onset_updates or (np.nan, np.nan)
            inside += low < run.half <= high
            widths.append((high - low) / run.settings.sync_interval)
        progress("dead", index, runs, f"wrong {wrong}")
    found = runs - len(wrong)
    yield (
        "dead",
        "called in time",
        f"{found} of {runs}",
        f"{found / runs:.2%}, lower limit {limits(found, runs)[0]:.2%}",
    )
    for kind in sorted(total):
        yield (
            "dead",
            kind,
            f"{total[kind] - late[kind] - early[kind]} of {total[kind]}",
            f"{late[kind]} later, {early[kind]} before the onset",
        )
    yield (
        "dead",
        "updates from onset to call",
        f"median {np.median(delays):g}",
        f"95 % {np.quantile(delays, 0.95):g}",
    )
    yield (
        "dead",
        "half-way point of the fall in the onset interval",
        f"{inside} of {found}",
        f"width in units of S: median {np.median(widths):g}, 95 % {np.quantile(widths, 0.95):g}",
    )


def dips(runs: int, seed: int) -> Iterator[Row]:
    """Long dips that recover by themselves: how many are taken for a collapse, and the updates lost with them."""
    for length in DIP_UPDATES:
        ended, lost = Counter[int](), Counter[int]()
        each = max(1, runs // 20)
        for S, index in ((S, index) for S in (1, 16) for index in range(each)):
            rng = np.random.default_rng([seed, S, length, index])
            habits = Habits(dips=0.0)
            setting = Setting(updates=600, S=S, habits=habits, probe_every=LOOK)
            at, depth = int(rng.integers(200, 400)), rng.uniform(0.6, 1.0)

            def reshape(
                _: np.random.Generator, level: np.ndarray, at: int = at, depth: float = depth
            ) -> tuple[np.ndarray, float]:
                down = (np.arange(level.size) >= at) & (np.arange(level.size) < at + length)  # noqa: B023
                return np.where(down, level * (1 - depth), level), np.nan

            curve = simulate(setting, [int(rng.integers(2**62))], reshape=reshape).curve(0)
            looks = range(at, min(600, at + length + 3 * S + 100), LOOK)
            online = first_call(
                curve, JudgeSettings(sync_interval=S), [look // LOOK * LOOK for look in looks]
            )
            ended[S] += online is not None
            lost[S] += 0 if online is None else UPDATES - online[0]
            progress("dips", index, each, f"length {length}, S {S}")
        for S in (1, 16):
            yield (
                "dips",
                f"{length} updates down, S = {S}",
                f"{ended[S]} of {each} ended",
                f"{lost[S] / each:.0f} of {UPDATES} planned updates lost on average",
            )


def shapes(runs: int, seed: int) -> Iterator[Row]:
    """Part (c): the verdict on every odd shape."""
    each = max(1, runs // 20)
    for name in SHAPES:
        found, right = Counter[str](), 0
        for index in range(each):
            run = odd(name, seed * 100_003 + index)
            verdict = judge(run.curve, run.settings).verdict
            found[verdict.value] += 1
            right += verdict in run.allowed
        allowed = " or ".join(sorted(verdict.value for verdict in run.allowed))
        progress("shapes", each - 1, each, name)
        yield "shapes", f"{name} ({allowed})", f"{right} of {each}", told(found)


def told(found: Counter[str]) -> str:
    """Verdicts and their counts, most frequent first."""
    return ", ".join(f"{name} {count}" for name, count in found.most_common())


def progress(part: str, index: int, total: int, note: str) -> None:
    """One line to stderr now and then."""
    if (index + 1) % 200 == 0 or index + 1 == total:
        print(f"{part} {index + 1}/{total} {note}", file=sys.stderr, flush=True)


PARTS = {"stable": stable, "dead": dead, "dips": dips, "shapes": shapes}


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", type=Path)
    told_ = parser.parse_args()
    rows: list[Row] = [("part", "what", "result", "detail")]
    for part in told_.part:
        start = time.perf_counter()
        for row in PARTS[part](told_.runs, told_.seed):
            print(" | ".join(row), flush=True)
            rows.append(row)
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if told_.table is not None:
        told_.table.parent.mkdir(parents=True, exist_ok=True)
        with told_.table.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
