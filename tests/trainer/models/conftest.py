from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.models import EMBEDDED_FOLDER

SIZES = {
    "vocab_size": 13,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 64,
    "eos_token_id": 12,
}

MakeModel = Callable[..., Path]


@pytest.fixture
def make_model() -> MakeModel:
    """Save a small Qwen3 with random weights and the embedded policy's tokenizer in a folder."""

    def make(
        folder: Path, *, shard: str = "5GB", edit: Callable[[Any], None] | None = None, **changes: Any
    ) -> Path:
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes}))
        if edit is not None:
            with torch.no_grad():
                edit(model)
        model.save_pretrained(folder, max_shard_size=shard)
        for path in EMBEDDED_FOLDER.glob("tokenizer*"):
            shutil.copy(path, folder)
        return folder

    return make
