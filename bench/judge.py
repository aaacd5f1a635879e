"""Seconds and memory of `calibrate judge` on a large log.

`python bench/judge.py [--megabytes 200] [--shape verl|wide|own|prime-rl|csv ...] [--collapse] [--folder DIR]`. Writes a
JSONL (or CSV) of that size and judges it in a process of its own, start-up included; peak memory is that process's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MB = 10**6
Row = dict[str, Any]
NOISE = np.random.default_rng(0).random(4099).tolist()


def noise(step: int, column: int) -> float:
    """Something between 0 and 1 that repeats after 4099 steps."""
    return float(NOISE[(step + 37 * column) % len(NOISE)])


def verl(step: int, reward: float) -> Row:
    """The file logger of verl, short rows."""
    metrics = {
        "training/global_step": step,
        "critic/score/mean": reward,
        "critic/rewards/mean": reward,
        "actor/lr": 1e-6,
        "actor/grad_norm": 0.3 + 0.1 * noise(step, 1),
        "actor/entropy": 0.5 + 0.1 * noise(step, 2),
        "actor/ppo_kl": 1e-3 * noise(step, 3),
        "response_length/mean": 880 + 20 * noise(step, 4),
        "response_length/clip_ratio": 0.02,
    }
    return {"step": step, "data": metrics}


def wide(step: int, reward: float) -> Row:
    """verl with its sixty timings and statistics."""
    row = verl(step, reward)
    row["data"] |= {f"timing_s/part_{i}": noise(step, i) for i in range(50)}
    return row


def own(step: int, reward: float) -> Row:
    """Rows of our own trainer."""
    return {
        "update": step - 1,
        "version": (step - 1) // 4 * 4,
        "learning_rate": 1e-6,
        "cumulative_lr": 1e-6 * step,
        "reward_mean": reward,
        "reward_se": 0.03,
        "pass_histogram": [2, 1, 1, 1, 1, 2],
        "signal": 0.5,
        "loss": noise(step, 5),
        "entropy": noise(step, 6),
        "grad_norm": noise(step, 7),
        "lag_max": (step - 1) % 4,
        "log_ratio_abs_mean": 0.01,
        "ess": 0.99,
        "response_length": 20.0,
        "truncated": 0.0,
    }


def prime_rl(step: int, reward: float) -> Row:
    """Rows of prime-rl."""
    return {
        "step": step - 1,
        "train/agg/effective/all/rewards/all/mean": reward,
        "optim/lr": 1e-6,
        "optim/grad_norm": noise(step, 8),
        "mismatch_kl/all/mean": 8e-4,
        "off_policy/mean": 1.6,
        "off_policy/max": 2,
    }


def csv(step: int, reward: float) -> Row:
    """A table with a column `update`."""
    return {"update": step - 1, "reward": reward, "learning_rate": 1e-6, "grad_norm": noise(step, 9)}


SHAPES: dict[str, Callable[[int, float], Row]] = {
    "verl": verl,
    "wide": wide,
    "own": own,
    "prime-rl": prime_rl,
    "csv": csv,
}


def write(path: Path, shape: str, size: int, *, collapse: bool) -> int:
    """Write a log of `size` bytes; returns its rows."""
    row, rows = SHAPES[shape], 0
    total = size // len(json.dumps(row(10**6, 0.123456789)))
    with path.open("w") as file:
        if shape == "csv":
            file.write(",".join(row(1, 0.0)) + "\n")
        while file.tell() < size if rows % 1000 == 0 else True:
            rows += 1
            dead = collapse and rows > 0.6 * total
            reward = 0.0 if dead else 0.4 + 0.3 * noise(rows, 0)
            content = row(rows, reward)
            file.write(
                (",".join(map(str, content.values())) if shape == "csv" else json.dumps(content)) + "\n"
            )
    return rows


def judge(path: Path) -> tuple[float, float, float, str]:
    """Seconds, seconds of processor time, peak MB and verdict."""
    code = "from calibrator.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    answer = subprocess.run(
        [sys.executable, "-c", code, "judge", str(path), "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, busy, after.ru_maxrss * 1024 / MB, json.loads(answer.stdout)["verdict"]


def main() -> None:
    """Print one line for each shape; peak memory is the largest so far, so that shapes are best given one at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["verl"])
    parser.add_argument("--collapse", action="store_true")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    print(f"{'shape':<10}{'MB':>6}{'rows':>10}{'seconds':>9}{'cpu':>7}{'peak MB':>9}  verdict")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for shape in args.shape:
            path = Path(folder) / ("log.csv" if shape == "csv" else "log.jsonl")
            rows = write(path, shape, args.megabytes * MB, collapse=args.collapse)
            seconds, busy, peak, verdict = judge(path)
            size = path.stat().st_size / MB
            print(
                f"{shape:<10}{size:>6.0f}{rows:>10}{seconds:>9.1f}{busy:>7.1f}{peak:>9.0f}  {verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
