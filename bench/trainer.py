"""Seconds per update of the lockstep trainer on the embedded default, and where they go.

`python bench/trainer.py [--sync-interval 8] [--updates 64] [--repetitions 5] [--json]`. One thread, no probe: what an
update of a sweep costs between two probes. `generate` and `learn` hold the model's forward passes, the backward pass
and the optimizer's step only; `score` is the task's scoring function; `overhead` is all the rest: sampling tokens,
masks, estimators, statistics, writing rows.

`--profile` prints where the time of an update goes instead, by kinds of torch's operations, as torch.profiler counts
them; what is left is Python, the start of operations, and the profiler itself.

`python bench/trainer.py --against trl [--repetitions 8] [--json]` compares with GRPOTrainer of TRL instead, see
`bench/against_trl.py`; `make bench-trl` makes the environment that this wants.
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
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where this very file would be taken for the package of the same name.
HERE = Path(__file__).resolve().parent
sys.path = [entry for entry in sys.path if Path(entry).resolve() != HERE]

import torch
from transformers import Qwen3ForCausalLM

from trainer.config import ProbeConfig, RunConfig, TrainerConfig
from trainer.loop.train import train
from trainer.tasks import RunningSum

TRL_PYTHON = HERE.parent / ".venv" / "trl" / "bin" / "python"
"""Interpreter of the environment that has TRL, and everything that this trainer needs, too."""
PHASES = ("generate", "score", "learn", "overhead")


@contextmanager
def counted(owner: Any, name: str, seconds: dict[str, float], phase: Callable[[], str]) -> Iterator[None]:
    """Add the time spent in `owner.name` to a phase while the block runs."""
    original = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            seconds[phase()] += time.perf_counter() - start

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, original)


def measure(config: RunConfig, folder: Path) -> dict[str, float]:
    """Seconds per update by phase of one run, the first cycle left out: it warms caches."""
    seconds: dict[str, float] = defaultdict(float)
    marks: list[tuple[float, dict[str, float]]] = []

    def on_row(rows: Any) -> bool:
        if len(rows) in (config.sync_interval, config.updates):
            marks.append((time.perf_counter(), dict(seconds)))
        return False

    with (
        counted(
            Qwen3ForCausalLM, "__call__", seconds, lambda: "learn" if torch.is_grad_enabled() else "generate"
        ),
        counted(torch.Tensor, "backward", seconds, lambda: "learn"),
        counted(torch.optim.AdamW, "step", seconds, lambda: "learn"),
        counted(RunningSum, "score", seconds, lambda: "score"),
    ):
        train(config, folder, on_row=on_row)
    (start, before), (end, after) = marks
    updates = config.updates - config.sync_interval
    parts = {phase: (after.get(phase, 0.0) - before.get(phase, 0.0)) / updates for phase in PHASES[:-1]}
    whole = (end - start) / updates
    return {"update": whole, **parts, "overhead": whole - sum(parts.values())}


KINDS = {
    "matrix products": ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"),
    "attention kernels": ("aten::_scaled_dot_product", "aten::_softmax"),
    "moving memory": ("aten::copy_", "aten::cat", "aten::fill_", "aten::clone", "aten::index"),
    "optimizer": ("Optimizer.step", "aten::_fused_adam"),
    "other arithmetic": ("aten::",),
}
"""Kinds of operations by the beginnings of their names; the first that fits counts."""


def profiled(config: RunConfig, folder: Path) -> dict[str, float]:
    """Seconds per update by kind of operation, the first and the last cycle left out."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    marks: list[float] = []

    def on_row(rows: Any) -> bool:
        if len(rows) == config.sync_interval:
            profiler.start()
            marks.append(time.perf_counter())
        elif len(rows) == config.updates - config.sync_interval:
            marks.append(time.perf_counter())
            profiler.stop()
        return False

    train(config, folder, on_row=on_row)
    updates = config.updates - 2 * config.sync_interval
    seconds = dict.fromkeys(KINDS, 0.0)
    for event in profiler.key_averages():
        fits = [kind for kind, names in KINDS.items() if event.key.startswith(names)]
        if fits:
            seconds[fits[0]] += event.self_cpu_time_total / 1e6 / updates
    whole = (marks[1] - marks[0]) / updates
    return {"update": whole, **seconds, "the rest": whole - sum(seconds.values())}


def against_trl(repetitions: int, *, as_json: bool) -> int:
    """Exit status of the comparison, which prints by itself."""
    if not TRL_PYTHON.is_file():
        print(
            f"{TRL_PYTHON} is missing: `make bench-trl` makes it, from PyPI, and runs this", file=sys.stderr
        )
        return 5
    command = [str(TRL_PYTHON), str(HERE / "against_trl.py"), "--repetitions", str(repetitions)]
    return subprocess.run(command + ["--json"] * as_json, check=False).returncode


def main() -> None:
    """Run and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sync-interval", type=int, default=8)
    parser.add_argument("--updates", type=int, default=64)
    parser.add_argument("--repetitions", type=int, help="5 runs, or against TRL 8 turns")
    parser.add_argument("--against", choices=("trl",))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.against:
        raise SystemExit(against_trl(options.repetitions or 8, as_json=options.json))
    config = RunConfig(
        trainer=TrainerConfig(group_size=16, prompts_per_update=8),
        probe=ProbeConfig(every=10**6),
        sync_interval=options.sync_interval,
        learning_rate=3e-4,
        updates=options.updates,
    )
    runs = []
    for repetition in range(options.repetitions or 5):
        with tempfile.TemporaryDirectory() as folder:
            way = profiled if options.profile else measure
            runs.append(way(config.model_copy(update={"seed": repetition}), Path(folder)))
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    shares = {name: medians[name] / medians["update"] for name in medians if name != "update"}
    if options.json:
        print(json.dumps({"seconds": medians, "shares": shares}))
        return
    print(f"P=8, G=16, S={options.sync_interval}, one thread: {medians['update']:.4f} s per update")
    for name, share in shares.items():
        print(f"  {name:<17} {medians[name]:.4f} s  {share:6.1%}")


if __name__ == "__main__":
    main()
