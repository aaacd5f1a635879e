"""This trainer against GRPOTrainer of TRL 1.16: updates per second and peak memory. Run by `bench/trainer.py`.

Both train the same embedded policy (109k parameters, same weights, same transformers and torch) on the same task with
8 prompts x 16 completions of at most 9 tokens an update, float32, one thread, Adam without weight decay, gradient norm
clipped at 1, no reference model, no evaluation, no saving, nothing reported. An update is everything from one
`optimizer.step()` to the next: prompts, sampling, rewards, loss, gradient, step, and what each trainer keeps as its
metrics. Sampling for S updates at a time is `sync_interval = S` here and `steps_per_generation = S` there, with
`num_iterations = 1`: lags are 0 .. S - 1 on both sides. TRL samples with transformers' key-value cache, as this
trainer does; vLLM is off; its rows are not padded to a multiple of tokens, and its fused output head is on, both of
which make it quicker here. Where it learns from stale rollouts it first computes their logprobs anew, as it must.

The parties live in one process, on threads of which exactly one runs: each makes a chunk of whole cycles, then hands
over to the next, so that whatever else the machine does slows all of them. The first chunk of each is left out. Peak
memory is VmHWM of a fresh process for each party, which counts what each imports.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).resolve().parent
# Not this script's folder, where trainer.py would be taken for the package of the same name, but the one above.
sys.path = [str(HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]

import numpy as np
import torch

from trainer.config import ModelConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.models.folder import EMBEDDED_FOLDER
from trainer.tasks import Example, RunningSum

P, G, T = 8, 16, 9
RATE = 3e-4
PARTIES = ("trl", "ours", "unshared")
"""TRL; this trainer; this trainer reading the prompt once a completion."""
PROMPTS = (9, 64, 512)
UPDATES = {9: 4, 64: 2, 512: 1}
"""Updates of a chunk by prompt length; with S > 1 one cycle."""

Mark = Callable[[], None]


class LongSum(RunningSum):
    """The running sum behind as many zeros as make the prompt `length` characters, which are its tokens, long."""

    def __init__(self, length: int = 9) -> None:
        super().__init__()
        self.length = length

    def prompts(self, rng: np.random.Generator, n: int, *, held_out: bool = False) -> list[Example]:
        found = super().prompts(rng, n, held_out=held_out)
        return [Example(e.prompt.rjust(self.length, "0"), e.reference) for e in found]


def make_model(folder: Path) -> Path:
    """A copy of the embedded policy with positions enough for long prompts; its rotary positions need no weights."""
    for path in EMBEDDED_FOLDER.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    return folder


def run_ours(model: Path, length: int, interval: int, updates: int, mark: Mark, *, shared: bool) -> None:
    from trainer.loop.train import train

    sys.modules["against_trl"] = sys.modules[__name__]
    config = RunConfig(
        model=ModelConfig(path=str(model)),
        task=TaskConfig(name="against_trl:LongSum", options={"length": length}, held_out=8),
        trainer=TrainerConfig(
            estimator="grpo",
            group_size=G,
            prompts_per_update=P,
            response_limit=T,
            warmup=0,
            share_prompts=shared,
        ),
        probe=ProbeConfig(every=10**6, prompts=8),
        sync_interval=interval,
        learning_rate=RATE,
        updates=updates,
        checkpoint_every=10**6,
    )

    def on_row(rows: Sequence[Any]) -> bool:
        mark()
        return False

    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder), on_row=on_row)


def run_trl(model: Path, length: int, interval: int, updates: int, mark: Mark) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    logging.disable_progress_bar()
    task = LongSum(length)
    examples = task.prompts(np.random.default_rng(0), P * updates)

    def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return task.score(completions, answer)

    class Marks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            mark()

    with tempfile.TemporaryDirectory() as folder:
        GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(model),
            reward_funcs=reward,
            train_dataset=Dataset.from_dict(
                {"prompt": [e.prompt for e in examples], "answer": [e.reference for e in examples]}
            ),
            callbacks=[Marks()],
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                per_device_train_batch_size=P * G,
                gradient_accumulation_steps=1,
                steps_per_generation=interval,
                num_iterations=1,
                num_generations=G,
                max_completion_length=T,
                temperature=1.0,
                top_k=0,
                beta=0.0,
                scale_rewards="group",
                learning_rate=RATE,
                lr_scheduler_type="constant",
                max_grad_norm=1.0,
                max_steps=updates,
                gradient_checkpointing=False,
                pad_to_multiple_of=None,
                dataloader_pin_memory=False,
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                log_completions=False,
                seed=0,
            ),
        ).train()


def party(name: str, model: Path, length: int, interval: int, updates: int, mark: Mark) -> None:  # noqa: PLR0917
    """Train `updates` updates; `mark` is called after each."""
    if name == "trl":
        run_trl(model, length, interval, updates, mark)
    else:
        run_ours(model, length, interval, updates, mark, shared=name == "ours")


def clocks() -> tuple[float, float]:
    """Seconds on the wall, and those that this thread computed; they differ where other processes took the core."""
    return time.perf_counter(), time.thread_time()


class Turns:
    """Threads that take turns: one makes a chunk of updates while the others wait."""

    def __init__(self, names: Sequence[str], chunk: int, rounds: int) -> None:
        self.names, self.chunk, self.rounds = names, chunk, rounds
        self.seconds: dict[str, list[float]] = {name: [] for name in names}
        self.cpu: dict[str, list[float]] = {name: [] for name in names}
        self.errors: list[BaseException] = []
        self._gates = {name: threading.Semaphore(0) for name in names}
        self._done = threading.Semaphore(0)

    def run(self, start: Callable[[str, Mark], None]) -> None:
        """Seconds per update of each party's chunks, the first one, which warms caches, left out."""
        threads = [
            threading.Thread(target=self._body, args=(name, start), daemon=True) for name in self.names
        ]
        for thread in threads:
            thread.start()
        for turn in range(self.rounds + 1):
            for name in self.names if turn % 2 else reversed(self.names):
                self._gates[name].release()
                self._done.acquire()
                if self.errors:
                    raise self.errors[0]
        for chunks in (*self.seconds.values(), *self.cpu.values()):
            del chunks[0]

    def _body(self, name: str, start: Callable[[str, Mark], None]) -> None:
        count, since = 0, clocks()

        def mark() -> None:
            nonlocal count, since
            count += 1
            if count % self.chunk == 0:
                wall, cpu = ((b - a) / self.chunk for a, b in zip(since, clocks(), strict=True))
                self.seconds[name].append(wall)
                self.cpu[name].append(cpu)
                self._done.release()
                self._gates[name].acquire()
                since = clocks()

        try:
            self._gates[name].acquire()
            since = clocks()
            start(name, mark)
        except BaseException as error:
            self.errors.append(error)
            self._done.release()


def compare(model: Path, length: int, interval: int, repetitions: int) -> dict[str, Any]:
    """Seconds per update of all parties, repetition by repetition, and the ratios of TRL's to ours."""
    chunk = max(interval, UPDATES[length])
    updates = chunk * (repetitions + 2)  # the last chunk is never begun
    names = PARTIES if length > PROMPTS[0] or interval == 1 else PARTIES[:2]
    turns = Turns(names, chunk, repetitions)
    turns.run(lambda name, mark: party(name, model, length, interval, updates, mark))
    seconds = turns.seconds
    ratios = [a / b for a, b in zip(seconds["trl"], seconds["ours"], strict=True)]
    processor = [a / b for a, b in zip(turns.cpu["trl"], turns.cpu["ours"], strict=True)]
    found: dict[str, Any] = {
        "prompt": length,
        "sync_interval": interval,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "ratio_cpu": statistics.median(processor),
        "ratios_cpu": processor,
        "seconds": {name: statistics.median(chunks) for name, chunks in seconds.items()},
        "repetitions": seconds,
        "repetitions_cpu": turns.cpu,
    }
    if "unshared" in seconds:
        pairs = zip(seconds["unshared"], seconds["ours"], strict=True)
        found["gain_of_sharing"] = statistics.median(a / b for a, b in pairs)
    return found


def peak_memory(name: str, length: int, interval: int) -> float:
    """MiB of a fresh process that makes two cycles."""
    command = [sys.executable, __file__, "--memory", name, str(length), str(interval)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"{name}: {answer.stderr[-2000:]}")
    return float(answer.stdout.splitlines()[-1])


def measure_memory(name: str, length: int, interval: int) -> float:
    """MiB: the most that was ever resident in this process."""
    with tempfile.TemporaryDirectory() as folder:
        party(name, make_model(Path(folder)), length, interval, 2 * interval, lambda: None)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """Compare, then print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--prompts", type=int, nargs="+", choices=PROMPTS, default=list(PROMPTS))
    parser.add_argument("--sync-intervals", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        name, length, interval = options.memory
        print(measure_memory(name, int(length), int(interval)))
        return
    settings = [
        (PROMPTS[0], interval) for interval in options.sync_intervals if PROMPTS[0] in options.prompts
    ]
    settings += [(length, 1) for length in options.prompts if length != PROMPTS[0]]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        for length, interval in settings:
            result = compare(model, length, interval, options.repetitions)
            if not options.no_memory:
                result["peak_mib"] = {name: peak_memory(name, length, interval) for name in PARTIES[:2]}
            found.append(result)
            print(row(result), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        ratios = {f"ratio_s{r['sync_interval']}": r["ratio"] for r in found if r["prompt"] == PROMPTS[0]}
        print(json.dumps({**ratios, "settings": found}))


def row(result: dict[str, Any]) -> str:
    """One line a setting."""
    seconds = ", ".join(f"{name} {value:.4f} s" for name, value in result["seconds"].items())
    memory = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in result.get("peak_mib", {}).items())
    gain = f", sharing x{result['gain_of_sharing']:.2f}" if "gain_of_sharing" in result else ""
    low, high = min(result["ratios"]), max(result["ratios"])
    return (
        f"prompt {result['prompt']:>3}, S = {result['sync_interval']}: {result['ratio']:.2f} times TRL's updates per "
        f"second ({low:.2f} to {high:.2f}; by processor time {result['ratio_cpu']:.2f}){gain}; {seconds}"
        + (f"; peak {memory}" if memory else "")
    )


if __name__ == "__main__":
    main()
