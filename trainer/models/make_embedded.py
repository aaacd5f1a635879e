"""Makes the embedded policy: a tiny Qwen3 with a character tokenizer, warm-started by supervised learning.

Run `python -m trainer.models.make_embedded FOLDER`. With the fixed seed the same machine gives the same bytes. The
policy samples about 0.4 exact answers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from trainer.engines.hf import HfEngine
from trainer.models import Policy
from trainer.tasks.running_sum import RunningSum

SEED = 0
STEPS = 400
BATCH = 128
LEARNING_RATE = 3e-3
MISTAKES = 0.12
"""Share of digits in the demonstrations that are replaced at random. The policy learns the task and this much
doubt: 0.89 right a digit makes about 0.4 right an answer. Stopping early instead, at 0.4, leaves a policy in the
middle of a steep transition, which collapses at learning rates four times smaller."""
SYMBOLS = ["<pad>", *"0123456789", "=", ";"]
DIGIT_IDS = (1, 11)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; `;` ends an answer."""
    tokenizer = Tokenizer(
        models.WordLevel({symbol: i for i, symbol in enumerate(SYMBOLS)}, unk_token="<pad>")  # noqa: S106
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token=";")  # noqa: S106


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """About 10^5 parameters. head_dim 32 is the smallest that vLLM runs; embeddings are untied for its sake, too."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(SYMBOLS),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def warm_start(model: Any, tokenizer: Any, task: RunningSum) -> None:
    """Supervised learning on demonstrations with mistakes; the rate rises, stays and falls to zero."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    rng = np.random.default_rng(SEED)
    prompt_length = task.digits + 1
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(
            1.0, (step + 1) / 20, 2 * (STEPS - step) / STEPS
        )
        examples = task.prompts(rng, BATCH)
        texts = [e.prompt + e.reference + tokenizer.eos_token for e in examples]
        ids = torch.tensor(tokenizer(texts)["input_ids"])
        logits = model(ids[:, :-1]).logits[:, prompt_length - 1 :]
        targets = with_mistakes(ids[:, prompt_length:], rng)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def with_mistakes(answers: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Replace a share of the digits of `answers` [N, T] by random ones; the end token, last, stays."""
    wrong = rng.random(answers.shape) < MISTAKES
    wrong[:, -1] = False
    random_digits = rng.integers(*DIGIT_IDS, size=answers.shape)
    return torch.where(torch.from_numpy(wrong), torch.from_numpy(random_digits), answers)


def exact_match(policy: Policy, task: RunningSum, prompts: int = 2048) -> float:
    """Sampled exact match on held-out prompts."""
    engine = HfEngine(
        policy, response_limit=task.digits + 1, temperature=1.0, dtype="float32", share_weights=True
    )
    examples = task.prompts(np.random.default_rng(SEED), prompts, held_out=True)
    rollouts = engine.generate([e.prompt for e in examples], samples=1, seed=SEED)
    texts = policy.tokenizer.batch_decode(rollouts.response, skip_special_tokens=True)
    return float(np.mean(task.score(texts, [e.reference for e in examples])))


def main() -> None:
    """Write config, tokenizer and weights to the folder given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    task = RunningSum()
    warm_start(model, tokenizer, task)
    policy = Policy(model, tokenizer, tokenizer.eos_token_id, tokenizer.pad_token_id)
    print(f"held-out exact match {exact_match(policy, task):.3f}")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
