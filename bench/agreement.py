"""Whether two schedules give the same verdicts at the same S_eff and eta.

`python bench/agreement.py [--effective 8] [--rates 7e-4 1.4e-3 3e-3] [--seeds 0 1 2] [--updates 320] [--divide 2]`. The
embedded default with gmc. Lockstep runs with S = S_eff; overlap with S = S_eff / 2 and one cycle queued, so that both
reach the lag S_eff - 1; `--divide 3` makes the mean lags about equal instead. Runs take turns, one at a time, since
overlap uses two cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from calibrator.sweep.trial import execute
from trainer.config import RunConfig


def config(schedule: str, interval: int, rate: float, seed: int, updates: int) -> RunConfig:
    """The run with this S under the schedule."""
    return RunConfig.model_validate(
        {
            "schedule": schedule,
            "sync_interval": interval,
            "learning_rate": rate,
            "seed": seed,
            "updates": updates,
        }
    )


def main() -> None:
    """Make the runs and print one line each, then the agreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effective", type=int, default=8)
    parser.add_argument("--rates", nargs="+", type=float, default=[7e-4, 1.4e-3, 3e-3])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=320)
    parser.add_argument("--divide", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    root = args.folder or Path(tempfile.mkdtemp())
    verdicts: dict[tuple[float, int, str], str] = {}
    print(
        f"{'eta':>8} {'seed':>4} {'schedule':<10}{'verdict':<14}{'onset':<16}{'lag':>4}{'L':>10}{'seconds':>9}"
    )
    for rate, seed, schedule in product(args.rates, args.seeds, ("lockstep", "overlap")):
        start = time.perf_counter()
        interval = args.effective if schedule == "lockstep" else args.effective // args.divide
        run = config(schedule, interval, rate, seed, args.updates)
        summary, verdict = execute(run, root / f"{schedule}-{rate:g}-{seed}")
        verdicts[rate, seed, schedule] = verdict.verdict.value
        onset = "-" if verdict.onset_updates is None else "{:.0f}..{:.0f}".format(*verdict.onset_updates)
        print(
            f"{rate:>8.2g} {seed:>4} {schedule:<10}{verdict.verdict.value:<14}{onset:<16}{summary.lag_reached:>4}"
            f"{verdict.cumulative_lr_total:>10.3g}{time.perf_counter() - start:>9.1f}",
            flush=True,
        )
    for rate in args.rates:
        same = sum(verdicts[rate, s, "lockstep"] == verdicts[rate, s, "overlap"] for s in args.seeds)
        print(f"eta {rate:.2g}: {same} of {len(args.seeds)} seeds with the same verdict")


if __name__ == "__main__":
    main()
