"""Seconds of `calibrate fit` on a table of 20 and of 10,000 runs, start-up included.

`python bench/fit.py [--runs 20 10000] [--repeats 3]`. Each repeat is a process of its own; wall and processor seconds
of the fastest are printed, with its exit code. The tables are simulated: S = 1, 4, 16, 64, rates over a factor of 256.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [str(ROOT), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT / "bench")]

import numpy as np

from calibrator.laws.table import OPTIONAL, REQUIRED
from calibrator.simulator.truth import Truth, simulated_run

INTERVALS = (1, 4, 16, 64)
TRUTH = Truth("ceiling", B=0.03, C=0.05, eta_0=4e-3, sigma_C=0.25)
FIT = [sys.executable, "-c", "from calibrator.cli import main; main()", "fit"]


def write_table(path: Path, runs: int) -> None:
    """A table of about equal cumulative learning rates; every run has a rate of its own."""
    per_interval = runs // len(INTERVALS)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*REQUIRED, *OPTIONAL], extrasaction="ignore")
        writer.writeheader()
        for S in INTERVALS:
            for seed, eta in enumerate(np.geomspace(1e-4, 2.56e-2, per_interval)):
                updates = max(round(4 * TRUTH.B / eta), 4 * S, 100)
                run = simulated_run(TRUTH, sync_interval=S, learning_rate=eta, updates=updates, seed=seed)
                writer.writerow(run.model_dump(mode="json"))


def seconds(path: Path) -> tuple[float, float, int]:
    """Wall and processor seconds of one process, and its exit code."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run([*FIT, str(path)], stdout=subprocess.DEVNULL, env=environment, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, answer.returncode


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", nargs="+", type=int, default=[20, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(f"{'runs':>7}{'wall s':>9}{'cpu s':>9}{'exit':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for runs in args.runs:
            path = Path(folder) / f"{runs}.csv"
            write_table(path, runs)
            wall, cpu, code = min(seconds(path) for _ in range(args.repeats))
            print(f"{runs:>7}{wall:>9.2f}{cpu:>9.2f}{code:>6}", flush=True)


if __name__ == "__main__":
    main()
