"""A repair of vLLM 0.32 on CPUs."""

from __future__ import annotations

from typing import Any


def repack_tied_head(model: Any) -> None:
    """Rebuild the packed copy of an output head that is tied to the embeddings.

    On a CPU vLLM 0.32 reloads the embeddings of such a model and leaves the packed head as it was.
    """
    head = getattr(model, "lm_head", None)
    embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
    tied = getattr(getattr(model, "config", None), "tie_word_embeddings", False)
    if tied and head is not None and embedding is not None:
        head.weight = embedding.weight
        head.quant_method.process_weights_after_loading(head)
