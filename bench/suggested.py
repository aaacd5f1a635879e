"""What resampled ratios say about other pairs (G, epsilon), beside runs that were made with them.

`python bench/suggested.py [--folder DIR] [--updates 160] [--runs 8] [--json]`. The embedded default, gmc, S = 16 at a
fifth of the largest stable rate, where the cap acts on up to a fifth of the groups; twelve minutes on one idle core. K
runs with the swept pair G = 16, epsilon = 0.2 are recorded, as a study has several at the S that it recommends; from
these alone cap activation and lost ratio mass of five other pairs are predicted, with 90 % intervals. Then K runs are
made with each pair, with other seeds, as many trajectories an update and as many updates.

What is predictable: averages over whole runs of the same length, S, rate and batch. Another pair trains another policy,
but Adam makes steps of the same size whatever the weights of a batch, so that ratios spread alike. The interval is that
of the mean over the runs that are made: the recorded runs' own (`calibrator.advice.resample`), its spread times sqrt(2)
since as many runs are made as were recorded. Runs end early because the cap acts early. Small epsilons and a small rate
are taken since lost mass beyond large ones comes from a few trajectories in ten thousand, which no short run tells.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where a file there would be taken for the package of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np

from calibrator.advice.ratios import complete_groups, joined, read_ratios
from calibrator.advice.suggest import rate_pairs, sources_of
from calibrator.advice.types import SuggestionRow
from trainer.config import ProbeConfig, RunConfig, TrainerConfig
from trainer.loop.train import train

S, RATE, BATCH = 16, 1e-4, 128
SWEPT = (16, 0.2)
PAIRS = ((4, 0.02), (4, 0.05), (8, 0.02), (8, 0.05), (16, 0.02))
NAMES = ("cap_activation", "lost_mass")
WIDEST = 2.0
"""Largest ratio of the ends of an interval that is of use."""


class Compared(NamedTuple):
    """One number of one pair."""

    group_size: int
    epsilon: float
    name: str
    predicted: float
    low: float
    high: float
    measured: float
    runs: list[float]

    @property
    def holds(self) -> bool:
        """Inside, by an interval that is narrow enough."""
        return self.low <= self.measured <= self.high <= WIDEST * self.low


def make(folder: Path, pair: tuple[int, float], *, seed: int, updates: int) -> Path:
    """The run with this pair; one that is there already is kept."""
    group_size, epsilon = pair
    trainer = TrainerConfig(group_size=group_size, prompts_per_update=BATCH // group_size, epsilon=epsilon)
    config = RunConfig(
        trainer=trainer,
        probe=ProbeConfig(every=S),
        sync_interval=S,
        learning_rate=RATE,
        updates=updates,
        seed=seed,
    )
    run = folder / f"G{group_size}-eps{epsilon:g}-seed{seed}-T{updates}"
    if not (run / "done").exists():
        train(config, run)
        (run / "done").touch()
        print(f"{run.name} made", file=sys.stderr, flush=True)
    return run


def predicted(recorded: Sequence[Path], pair: tuple[int, float]) -> SuggestionRow:
    """The row of a suggestion, from the recorded runs alone."""
    sources = sources_of(joined([read_ratios(run) for run in recorded]))
    (row,) = rate_pairs(sources, "gmc", [pair[0]], [pair[1]])
    return row.row


def measured(run: Path, epsilon: float) -> dict[str, float]:
    """What the cap did in a run, at every group that it learned from."""
    mass = np.exp(complete_groups(read_ratios(run)).log_ratio).mean(axis=1)
    return {
        "cap_activation": float(np.mean(mass > 1 + epsilon)),
        "lost_mass": float(np.mean(np.maximum(mass - 1 - epsilon, 0.0))),
    }


def compare(row: SuggestionRow, runs: list[dict[str, float]], recorded: int) -> list[Compared]:
    """Prediction from `recorded` runs and measurement of both numbers."""
    found = []
    for name in NAMES:
        value, (_, high) = getattr(row, name), row.intervals[name]
        spread = (high / value) ** math.sqrt(1 + recorded / len(runs))
        seen = [run[name] for run in runs]
        found.append(
            Compared(
                row.group_size,
                row.epsilon,
                name,
                value,
                value / spread,
                value * spread,
                float(np.mean(seen)),
                seen,
            )
        )
    return found


def main() -> None:
    """Make the runs that are missing, print one line for each number, then how many pairs hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--updates", type=int, default=160)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    numbers = range(1, options.runs + 1)
    recorded = [make(folder, SWEPT, seed=100 + number, updates=options.updates) for number in numbers]
    rows: list[Compared] = []
    for pair in PAIRS:
        runs = [make(folder, pair, seed=number, updates=options.updates) for number in numbers]
        seen = [measured(run, pair[1]) for run in runs]
        rows += compare(predicted(recorded, pair), seen, len(recorded))
    holding = sum(all(row.holds for row in rows if row[:2] == pair) for pair in PAIRS)
    if options.json:
        content: dict[str, Any] = {"rows": [row._asdict() for row in rows], "pairs_that_hold": holding}
        print(json.dumps(content, indent=2))
        return
    for row in rows:
        runs = ", ".join(f"{value:.4f}" for value in row.runs)
        print(
            f"G={row.group_size:<3} epsilon={row.epsilon:<5g} {row.name:<15} predicted {row.predicted:.4f} "
            f"[{row.low:.4f}, {row.high:.4f}] x{row.high / row.low:.2f}  measured {row.measured:.4f} ({runs})  "
            f"{'holds' if row.holds else 'FAILS'}"
        )
    print(f"{holding} of {len(PAIRS)} pairs hold with both numbers")


if __name__ == "__main__":
    main()
