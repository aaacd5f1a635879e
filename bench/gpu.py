"""The trainer on a real size: see gpu.sh."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent.resolve()]

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from trainer.config import ModelConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.loop.train import train
from trainer.tasks.running_sum import RunningSum

WARM = 4
"""Updates left out of the medians."""


@dataclass(frozen=True)
class Size:
    """Shape of the model and of a run."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    response: int
    prompts: int
    group: int
    groups_at_once: int
    matmul: int


FULL = Size(896, 24, 4864, 14, 2, 64, 151936, 512, 16, 16, 2, 8192)
TINY = Size(64, 2, 128, 4, 2, 32, 512, 16, 2, 4, 1, 256)
UPDATES, INTERVAL = 20, 4


class Coin(RunningSum):
    """Random weights solve nothing; a reward by checksum gives gradients all the same."""

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[float]:
        return [float(zlib.crc32(text.encode()) % 2) for text in completions]


def make_model(folder: Path, size: Size) -> int:
    """A Qwen3 with random weights and a character tokenizer padded to the vocabulary; returns its parameters."""
    symbols = ["<pad>", ";", "=", *"0123456789"]
    vocabulary = {symbol: i for i, symbol in enumerate(symbols)}
    vocabulary |= {f"<{i}>": i for i in range(len(symbols), size.vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    specials = {"pad_token": "<pad>", "eos_token": ";"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials).save_pretrained(folder)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=size.vocabulary,
            hidden_size=size.hidden,
            intermediate_size=size.intermediate,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.kv_heads,
            head_dim=size.head_dim,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def matmul_rate(n: int, device: str, dtype: torch.dtype) -> float:
    """FLOP/s of the best of ten square matrix products."""
    a, b = torch.randn(n, n, device=device, dtype=dtype), torch.randn(n, n, device=device, dtype=dtype)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2 * n**3 / min(seconds)


def config(model: Path, size: Size) -> RunConfig:
    return RunConfig(
        model=ModelConfig(path=str(model)),
        task=TaskConfig(name="bench_task:Coin", held_out=8),
        trainer=TrainerConfig(
            group_size=size.group,
            prompts_per_update=size.prompts,
            response_limit=size.response,
            micro_batch_groups=size.groups_at_once,
            dtype="bfloat16",
            warmup=2,
        ),
        probe=ProbeConfig(every=1000, prompts=8),
        sync_interval=INTERVAL,
        learning_rate=1e-6,
        updates=UPDATES,
        checkpoint_every=1000,
        record_ratios=False,
    )


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def report(folder: Path, size: Size, parameters: int, rate: float, device: str) -> None:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][WARM:]
    seconds = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()][WARM:]
    tokens = median([row["tokens_learned"] for row in rows])
    cycle_tokens = sum(row["tokens_generated"] for row in rows[:INTERVAL])
    generate = median([row["generate"] for row in seconds if "generate" in row])
    learn = median([row["learn"] for row in seconds])
    # 6 FLOPs a parameter and token: 2 forward, 4 backward. Tied embeddings are counted once: they multiply as the head.
    flops = 6 * parameters * tokens / learn
    peak = (
        torch.cuda.max_memory_allocated() / 2**30
        if device == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    )
    print(f"parameters            {parameters / 1e9:.3f} B, bfloat16 over float32 master weights")
    print(f"generate              {cycle_tokens / generate:,.0f} tokens/s (cycles of {INTERVAL} updates)")
    print(
        f"learn                 {tokens / learn:,.0f} tokens/s, {learn:.2f} s an update of {tokens:,.0f} tokens"
    )
    print(f"peak memory           {peak:.2f} GiB ({'allocated' if device == 'cuda' else 'resident'})")
    print(f"matmul rate           {rate / 1e12:.2f} TFLOP/s measured ({size.matmul} squared, bfloat16)")
    print(f"learner               {flops / 1e12:.2f} TFLOP/s, {flops / rate:.0%} of it")


def main() -> None:
    """Make the model, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a tiny model; works on a CPU")
    tiny: bool = parser.parse_args().tiny
    size = TINY if tiny else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not tiny:
        parser.error("no GPU here; --tiny goes the same way on a CPU")
    sys.modules["bench_task"] = sys.modules["__main__"]
    with tempfile.TemporaryDirectory() as scratch:
        model, run = Path(scratch) / "model", Path(scratch) / "run"
        parameters = make_model(model, size)
        rate = matmul_rate(size.matmul, device, torch.bfloat16)
        start = time.perf_counter()
        summary = train(config(model, size), run, device=device)
        seconds = time.perf_counter() - start
        print(f"run                   {summary.updates} updates, {summary.ended}, {seconds:.1f} s in all")
        report(run, size, parameters, rate, device)


if __name__ == "__main__":
    main()
