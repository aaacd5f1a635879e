"""Throughput of every engine under both schedules, and how well the two sides of `overlap` work at the same time.

`python bench/engines.py [--engines hf vllm] [--sync-intervals 4 16] [--updates 64] [--repetitions 3]`. Embedded
default, P = 8, G = 16, one thread a process. Every repetition is a run in a process of its own; repetitions of the
settings take turns, so that a busy machine slows all of them; medians are shown. Cycles at the start are left out.

Efficiency of `overlap` is max(generate, learn) / measured seconds an update, twice: with the seconds that the two sides
took in the same run (what the schedule loses), and with those they take alone, in lockstep (what the machine's shared
caches and memory cost as well).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

COLUMNS = ("tokens_per_s", "seconds", "generate", "learn", "wait", "efficiency", "efficiency_alone")


def measure(engine: str, schedule: str, interval: int, updates: int) -> dict[str, float]:
    """Seconds an update and by side, and tokens per second, of one run without probes."""
    from trainer.config import ProbeConfig, RunConfig
    from trainer.loop.train import train

    cycles = 2 if interval * 4 <= updates else 1
    warm = cycles * interval
    marks: list[float] = []

    def on_row(rows: object) -> bool:
        marks.append(time.perf_counter())
        return False

    config = RunConfig.model_validate(
        {
            "schedule": schedule,
            "engine": engine,
            "sync_interval": interval,
            "updates": updates,
            "probe": ProbeConfig(every=10**6),
            "checkpoint_every": 10**6,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder), on_row=on_row)
        rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        times = [json.loads(line) for line in (Path(folder) / "timings.jsonl").read_text().splitlines()]
    # The last update scores the policy on held-out prompts; the cycle that ends with it is left out.
    last = updates - interval
    wall = (marks[last - 1] - marks[warm - 1]) / (last - warm)
    seconds = {
        name: sum(row.get(name, 0.0) for row in times[warm:last]) / (last - warm)
        for name in ("generate", "score", "learn", "wait")
    }
    tokens = sum(row["tokens_learned"] for row in rows[warm:last]) / (last - warm)
    return {"tokens_per_s": tokens / wall, "seconds": wall, **seconds}


def in_a_process(setting: tuple[str, str, int], updates: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", *map(str, setting), "--updates", str(updates)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"{setting}: {answer.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", nargs="+", default=["hf", "vllm"])
    parser.add_argument("--schedules", nargs="+", default=["lockstep", "overlap"])
    parser.add_argument("--sync-intervals", nargs="+", type=int, default=[4, 16])
    parser.add_argument("--updates", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], args.one[1], int(args.one[2]), args.updates)))
        return
    settings = list(product(args.engines, args.schedules, args.sync_intervals))
    found: dict[tuple[str, str, int], list[dict[str, float]]] = {setting: [] for setting in settings}
    for _ in range(args.repetitions):
        for setting in settings:
            found[setting].append(in_a_process(setting, args.updates))
    medians = {
        setting: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        for setting, runs in found.items()
    }
    for (engine, schedule, interval), row in medians.items():
        if schedule == "overlap":
            row["efficiency"] = max(row["generate"] + row["score"], row["learn"]) / row["seconds"]
            alone = medians.get((engine, "lockstep", interval))
            if alone:
                row["efficiency_alone"] = (
                    max(alone["generate"] + alone["score"], alone["learn"]) / row["seconds"]
                )
    print(f"{'engine':<12}{'schedule':<10}{'S':>4}" + "".join(f"{name:>18}" for name in COLUMNS))
    for (engine, schedule, interval), row in medians.items():
        cells = "".join(f"{row[name]:>18.4g}" if name in row else f"{'':>18}" for name in COLUMNS)
        print(f"{engine:<12}{schedule:<10}{interval:>4}{cells}")


if __name__ == "__main__":
    main()
