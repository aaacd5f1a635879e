"""Makes what the two example studies need: a data file, and small policies that half know the answers.

    python examples/make_word_problems.py word-problems   # runs/word-problems/{problems.jsonl, model}
    python examples/make_word_problems.py chain-sum       # runs/chain-sum/model

The policies stand for a user's own model: a Qwen3 of 10^5 parameters with a tokenizer of words and a chat template,
warm-started for half a minute by supervised learning on questions that are not in the data file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.decoders import Fuse
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

Pair = tuple[str, str]
Draw = Callable[[np.random.Generator], Pair]

SEED = 0
QUESTIONS = 500
STEPS = 200
BATCH = 64
LEARNING_RATE = 3e-3
START = 0.4
"""Sampled share of right answers at the start: the policy knows more than it dares to say."""
OPTIONS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
"""Difficulty of chain-sum.toml."""

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn"]
THINGS = ["apples", "books", "coins", "marbles", "pens", "stamps"]
STORIES = [
    ("{name} has {a} {things} and gets {b} more. How many {things} does {name} have?", 1),
    ("There are {a} {things} in one box and {b} in another. How many {things} are there?", 1),
    ("{name} had {a} {things} and gave {b} away. How many {things} are left?", -1),
    ("Of {a} {things} {name} lost {b}. How many {things} remain?", -1),
]
SPECIAL = ["<pad>", "<unk>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
CHAT = (
    "{% for turn in messages %}<|{{ turn['role'] }}|>{{ turn['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def word_problem(rng: np.random.Generator) -> Pair:
    """A question about two numbers from 1 to 9 and its answer; differences are not negative."""
    story, sign = STORIES[rng.integers(len(STORIES))]
    low, high = sorted(int(x) for x in rng.integers(1, 10, size=2))
    name, things = NAMES[rng.integers(len(NAMES))], THINGS[rng.integers(len(THINGS))]
    return story.format(name=name, things=things, a=high, b=low), str(high + sign * low)


def chain_sum(rng: np.random.Generator) -> Pair:
    """A question of reasoning-gym's chain_sum and its answer."""
    from trainer.tasks.gym import make_dataset

    entry = make_dataset("chain_sum", {**OPTIONS, "size": 2**20})[int(rng.integers(2**20))]
    return entry["question"], entry["answer"]


def write_problems(path: Path, questions: int = QUESTIONS) -> None:
    """`questions` different word problems, one JSON object a line."""
    rng = np.random.default_rng(SEED)
    problems: dict[str, str] = {}
    while len(problems) < questions:
        problems.update([word_problem(rng)])
    rows = [json.dumps({"question": asked, "answer": right}) for asked, right in problems.items()]
    path.write_text("\n".join(rows) + "\n")


def make_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token a word, number or sign of `texts`; `<|end|>` ends a turn."""
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"\d+|\p{L}+|[^\d\p{L}]"), "isolated")]
    )
    words = sorted(
        {word for text in texts for word, _ in split.pre_tokenize_str(text)} | {"-", *map(str, range(20))}
    )
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
        eos_token="<|end|>",  # noqa: S106
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
    )
    fast.chat_template = CHAT
    return fast


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """About 10^5 parameters, with the head size that vLLM needs."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=128,
            initializer_range=0.1,  # the usual 0.02 is for wide models: this one would start slowly
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def demonstrations(tokenizer: Any, pairs: list[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [N, L] of conversations, and targets [N, L]: the answer's tokens with their end, -100 elsewhere."""
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": asked}], add_generation_prompt=True, tokenize=False
        )
        for asked, _ in pairs
    ]
    texts = [prompt + answer + "<|end|>" for prompt, (_, answer) in zip(prompts, pairs, strict=True)]
    batch = tokenizer(
        texts, add_special_tokens=False, return_tensors="pt", padding=True, padding_side="right"
    )
    ids = batch["input_ids"]
    starts = torch.tensor([len(row) for row in tokenizer(prompts, add_special_tokens=False)["input_ids"]])
    answer = (torch.arange(ids.shape[1]) >= starts[:, None]) & (batch["attention_mask"] == 1)
    return ids, ids.masked_fill(~answer, -100)


def warm_start(model: Any, tokenizer: Any, pairs: list[Pair], steps: int) -> None:
    """Supervised learning, then doubt; the rate rises, stays and falls to zero."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    rng = np.random.default_rng(SEED)
    ids, targets = demonstrations(tokenizer, pairs)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(
            1.0, (step + 1) / 20, 3 * (steps - step) / steps
        )
        rows = torch.from_numpy(rng.integers(len(pairs), size=BATCH))
        loss = -answer_logprobs(model, ids[rows], targets[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    make_doubtful(model, ids[:256], targets[:256])


def answer_logprobs(model: Any, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log-probability of each conversation's answer, end token included. [N, L], [N, L] -> [N]."""
    # Padded on the right, where a causal model never looks back from: no mask is needed.
    logits = model(input_ids=ids[:, :-1]).logits
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets[:, 1:], reduction="none")
    return -losses.sum(dim=-1)


@torch.no_grad()
def make_doubtful(model: Any, ids: torch.Tensor, targets: torch.Tensor) -> None:
    """Flatten the distribution (smaller last weights: smaller logits) until the right answer has START on average."""
    for _ in range(100):
        if float(answer_logprobs(model, ids, targets).exp().mean()) <= START:
            return
        model.lm_head.weight.mul_(0.95)


def make_policy(
    folder: Path, draw: Draw, *, avoid: frozenset[str] = frozenset(), steps: int = STEPS, pairs: int = 8000
) -> None:
    """A warm-started model with its tokenizer in `folder`; `avoid`: questions that it must not have seen."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED + 1)
    drawn = [draw(rng) for _ in range(pairs)]
    tokenizer = make_tokenizer(asked for asked, _ in drawn)
    model = make_model(tokenizer)
    warm_start(model, tokenizer, [pair for pair in drawn if pair[0] not in avoid], steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_word_problems(folder: Path, *, steps: int = STEPS) -> None:
    """`problems.jsonl` and `model` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_problems(folder / "problems.jsonl")
    rows = map(json.loads, (folder / "problems.jsonl").read_text().splitlines())
    make_policy(folder / "model", word_problem, avoid=frozenset(row["question"] for row in rows), steps=steps)


def make_chain_sum(folder: Path, *, steps: int = STEPS) -> None:
    """`model` in `folder`."""
    make_policy(folder / "model", chain_sum, steps=steps)


MAKERS: dict[str, Callable[[Path], None]] = {
    "word-problems": make_word_problems,
    "chain-sum": make_chain_sum,
}


def main() -> None:
    """Make the files of one example under `runs/`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("example", choices=MAKERS)
    parser.add_argument("--folder", type=Path, help="left out: runs/EXAMPLE")
    given = parser.parse_args()
    MAKERS[given.example](given.folder or Path("runs") / given.example)


if __name__ == "__main__":
    main()
