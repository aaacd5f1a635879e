"""Peak memory and time of response logprobs at a large vocabulary: in chunks against all logits at once.

`python bench/logprobs.py [--vocabulary 151936] [--hidden 256] [--sequences 8] [--tokens 256] [--dtype float32]
[--repetitions 3] [--json]`. Each way runs in fresh processes, forward and backward of a one-layer Qwen3 with random
weights; memory is the peak above what the process held before (resident set on a CPU, allocated on a GPU).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Python puts this script's folder first, where trainer.py would be taken for the package of the same name.
HERE = Path(__file__).resolve().parent
sys.path = [entry for entry in sys.path if Path(entry).resolve() != HERE]

WAYS = ("whole", "chunks")
GIB = 2**30


def measure(options: argparse.Namespace) -> dict[str, float]:
    """One forward and backward pass in this process: seconds, and GiB above what was held before."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from trainer.config import TrainerConfig
    from trainer.loop import logprobs
    from trainer.loop.rollouts import Rollouts

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.hidden,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
    )
    model = Qwen3ForCausalLM(shape).eval().to(device)
    assert logprobs.has_linear_head(model)
    size = (options.sequences, options.tokens)
    response = torch.randint(options.vocabulary, size, device=device)
    mask = torch.ones(size, dtype=torch.bool, device=device)
    rollouts = Rollouts(
        response[:, :8], mask[:, :8], response, mask, mask.float(), mask.long(), torch.zeros(len(mask))
    )
    if options.way == "whole":
        logprobs.LOGIT_BYTES = 2**60
    before = held(device)
    start = time.perf_counter()
    found = logprobs.response_logprobs(model, rollouts, TrainerConfig(dtype=options.dtype))
    found.mean().backward()
    gradient = float(sum(p.grad.norm() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5)
    return {
        "seconds": time.perf_counter() - start,
        "gib": (held(device) - before) / GIB,
        "logprob": float(found.mean()),
        "gradient": gradient,
    }


def held(device: str) -> int:
    """Largest number of bytes that were ever held so far."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Run both ways in turn and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options)))
        return
    given = [text for text in sys.argv[1:] if text != "--json"]
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.repetitions):
        for way in WAYS:
            command = [sys.executable, __file__, *given, "--way", way]
            environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
            answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            runs[way].append(json.loads(answer.stdout))
    medians = {
        way: {key: statistics.median(run[key] for run in done) for key in done[0]}
        for way, done in runs.items()
    }
    if options.json:
        print(json.dumps(medians))
        return
    logits = options.sequences * options.tokens * options.vocabulary * 4 / GIB
    print(
        f"{options.sequences} x {options.tokens} tokens, {options.vocabulary} words: {logits:.2f} GiB of logits"
    )
    for way, found in medians.items():
        print(
            f"  {way:<7} {found['gib']:6.2f} GiB  {found['seconds']:7.2f} s  mean logprob {found['logprob']:.6f}  "
            f"gradient norm {found['gradient']:.6e}"
        )
    whole, chunks = (medians[way] for way in WAYS)
    print(
        f"  memory {whole['gib'] / chunks['gib']:.1f} times less, time x{chunks['seconds'] / whole['seconds']:.2f}"
    )


if __name__ == "__main__":
    main()
