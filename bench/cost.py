"""Predicted seconds per update for settings that no sweep made, beside the same settings measured.

`python bench/cost.py [--rounds 4] [--json]`. The embedded default on one thread; about two minutes. A sweep times
S = 1, 4 and 16 at P = 8, G = 16, as a study does, and short runs time two other batches, see `calibrator.sweep.pace`.
The cost model is fitted to those cycles (`calibrator.advice.cost`). The reference settings are run in turns with them,
in the same process, so that a busy machine slows all alike; the first cycle of every run is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from calibrator.advice.cost import CostModel, TimedCycles, cost_from_timings
from calibrator.study.timings import cycles
from calibrator.sweep.pace import pace_runs
from trainer.config import ProbeConfig, RunConfig, TrainerConfig
from trainer.loop.train import train

P, G = 8, 16
PARTS = ("generate", "score", "learn", "synchronize")


class Setting(NamedTuple):
    S: int
    P: int
    G: int


SWEPT = (Setting(1, P, G), Setting(4, P, G), Setting(16, P, G))
REFERENCE = (Setting(8, 4, 16), Setting(2, 16, 16), Setting(12, 8, 32))
Timed = dict[Setting, list[dict[str, float]]]


def swept(setting: Setting) -> RunConfig:
    """Cycles enough for a first one that does not count."""
    return RunConfig(
        trainer=TrainerConfig(prompts_per_update=setting.P, group_size=setting.G, warmup=0),
        probe=ProbeConfig(every=10**6),
        sync_interval=setting.S,
        learning_rate=1e-4,
        updates=max(3 * setting.S, 8),
    )


def plan() -> dict[Setting, RunConfig]:
    """All runs of a round."""
    runs = {setting: swept(setting) for setting in (*SWEPT, *REFERENCE)}
    for config in pace_runs(runs[SWEPT[1]]):
        trainer = config.trainer
        runs[Setting(config.sync_interval, trainer.prompts_per_update, trainer.group_size)] = config
    return runs


def measure(rounds: int) -> Timed:
    """Cycles of each setting, in turns, the first cycle of a run left out."""
    timed: Timed = {}
    for number in range(rounds):
        for setting, config in plan().items():
            with tempfile.TemporaryDirectory() as folder:
                train(config.model_copy(update={"seed": number}), Path(folder))
                timed.setdefault(setting, []).extend(cycles(Path(folder))[1:])
    return timed


def fitted(timed: Timed) -> CostModel:
    """The model of a study that made the swept settings and the pace runs."""
    return cost_from_timings(
        (row for setting in SWEPT for row in timed[setting]),
        prompts_per_update=P,
        group_size=G,
        response_length=9.0,
        others=[
            TimedCycles(setting.P * setting.G, rows)
            for setting, rows in timed.items()
            if setting not in (*SWEPT, *REFERENCE)
        ],
    )


def seconds(rows: list[dict[str, float]]) -> float:
    """Median over cycles of the seconds of an update."""
    return statistics.median(sum(row[part] for part in PARTS) / row["updates"] for row in rows)


def compared(timed: Timed) -> list[dict[str, float]]:
    """Predicted and measured seconds of every setting."""
    cost = fitted(timed)
    rows = []
    for setting, cycles_ in timed.items():
        predicted, measured = cost.seconds_at(*setting), seconds(cycles_)
        error = predicted / measured - 1
        rows.append({**setting._asdict(), "predicted": predicted, "measured": measured, "error": error})
    return rows


def main() -> None:
    """Run and print one line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    timed = measure(options.rounds)
    rows = compared(timed)
    if options.json:
        print(json.dumps({"rows": rows, "terms": fitted(timed).model_dump()["terms"]}, indent=2))
        return
    for setting, row in zip(timed, rows, strict=True):
        kind = "reference" if setting in REFERENCE else "swept" if setting in SWEPT else "pace"
        print(
            f"{kind:<10} S={setting.S:<3} P={setting.P:<3} G={setting.G:<3} "
            f"predicted {row['predicted']:.4f} s  measured {row['measured']:.4f} s  {row['error']:+.1%}"
        )
    print(fitted(timed).terms)


if __name__ == "__main__":
    main()
