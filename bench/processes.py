"""What sharing a learner among processes saves: peak memory of each process and seconds an update, by their number.

`python bench/processes.py [--hidden 640] [--layers 10] [--vocabulary 64] [--processes 1 2] [--lora] [--updates 4]
[--json]`. For each number a fresh run on a Qwen3 with random weights, on the CPU by gloo; memory is VmHWM, the largest
resident set of a process since its start, read at the last update: three probes are in it, no checkpoint. As for users,
the processes of a team give large buffers back and one alone keeps them (`trainer.loop.allocator`). The reward is the
number of characters. All rollouts are drawn before anything is learned, so all runs learn from the same ones; at the
end the largest difference of any weight from that of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
HERE = Path(__file__).resolve().parent
sys.path = [entry for entry in sys.path if Path(entry).resolve() != HERE]

MIB = 2**20


def make_model(folder: Path, options: argparse.Namespace) -> None:
    """A Qwen3 of the asked size with the embedded policy's tokenizer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from trainer.models import EMBEDDED_FOLDER

    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=int(2.8 * options.hidden),
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        num_key_value_heads=max(1, options.hidden // 128),
        head_dim=64,
        max_position_embeddings=64,
        eos_token_id=12,
    )
    Qwen3ForCausalLM(shape).save_pretrained(folder)
    for path in EMBEDDED_FOLDER.glob("tokenizer*"):
        shutil.copy(path, folder)


TASK = """
from trainer.tasks import RunningSum

class Length(RunningSum):
    reward_floor, full_marks = 0.0, 9.0

    def score(self, completions, references):
        return [float(len(completion)) for completion in completions]
"""


def peak(process: int | str) -> float:
    """MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024 / MIB


def measure(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """One run in this process, which leads."""
    from multiprocessing import active_children

    sys.path.append(str(folder))
    from trainer.config import LoraConfig, ModelConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
    from trainer.loop.train import train
    from trainer.metrics import MetricsRow

    lora = LoraConfig() if options.lora else None
    run = RunConfig(
        model=ModelConfig(path=str(folder / "model")),
        trainer=TrainerConfig(group_size=8, prompts_per_update=4, warmup=0, lora=lora),
        probe=ProbeConfig(every=2, prompts=8),
        task=TaskConfig(name="length:Length", held_out=8),
        sync_interval=options.updates,
        learning_rate=1e-4,
        updates=options.updates,
        checkpoint_every=options.updates,
    )
    peaks: list[float] = []

    def on_row(rows: Sequence[MetricsRow]) -> bool:
        if len(rows) == options.updates:
            peaks.extend([peak("self"), *(peak(child.pid or 0) for child in active_children())])
        return False

    own = folder / f"run-{options.own}"
    train(run, own, on_row=on_row, processes=options.own, policy_folder=own / "policy")
    timings = [json.loads(line) for line in (own / "timings.jsonl").read_text().splitlines()]
    learn = sorted(row["learn"] for row in timings[1:])
    return {"processes": options.own, "peak_mib": peaks, "learn_s": learn[len(learn) // 2]}


def difference(folder: Path, processes: int) -> float:
    """Largest difference of any weight from those that one process made."""
    from safetensors.torch import load_file

    one, other = (load_file(folder / f"run-{n}/policy/model.safetensors") for n in (1, processes))
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=640)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--vocabulary", type=int, default=64)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--own", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own:
        print(json.dumps(measure(options.folder, options)))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_model(folder / "model", options)
        (folder / "length.py").write_text(TASK)
        from trainer.models.memory import count_parameters

        found = []
        for n in options.processes:
            command = [sys.executable, __file__, *sys.argv[1:], "--own", str(n), "--folder", place]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(json.loads(answer.stdout.splitlines()[-1]))
            if 1 in options.processes:
                found[-1]["difference"] = difference(folder, n)
        report = {"parameters": count_parameters(folder / "model"), "lora": options.lora, "runs": found}
    if options.json:
        print(json.dumps(report))
        return
    print(f"{report['parameters'] / 1e6:.1f} million parameters{', adapters only' * options.lora}")
    for row in found:
        peaks = ", ".join(f"{size:.0f}" for size in row["peak_mib"])
        print(
            f"{row['processes']} processes: peak {peaks} MiB, {row['learn_s']:.2f} s an update learning, "
            f"weights differ by at most {row.get('difference', float('nan')):.1e}"
        )


if __name__ == "__main__":
    main()
