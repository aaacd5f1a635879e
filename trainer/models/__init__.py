"""Policies: a Hugging Face causal language model with its tokenizer, from a folder, by name, or embedded here."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainer.config import LoraConfig, ModelConfig
from trainer.errors import ConfigError, EnvironmentFailedError
from trainer.models.adapters import (
    Weights,
    add_adapters,
    has_adapters,
    merged,
    trained_weights,
    with_weights,
)
from trainer.models.folder import EMBEDDED_FOLDER, model_digest, model_folder, read_shape

if TYPE_CHECKING:
    from torch import Tensor

    from trainer.loop.rollouts import Rollouts

UNUSED_SHARE = 0.01
"""Share of the vocabulary without a token, above which it is no mere padding of the output head."""


class Share(Protocol):
    """What a process that holds only a share of the weights can ask all of them for."""

    def gathered(self, names: Sequence[str]) -> Weights:
        """Parameters in full, each gathered when it is asked for."""

    def score(self, rollouts: Rollouts) -> Tensor:
        """See `trainer.loop.mismatch.scored_logprobs`."""


@dataclass
class Policy:
    """A model in float32 master weights and what is needed to talk to it."""

    model: Any
    """transformers PreTrainedModel."""
    tokenizer: Any
    eos: int
    pad: int
    share: Share | None = None
    """Set where the model's weights are shared out among processes."""

    @property
    def weights(self) -> Weights:
        """The present weights that training changes, by their names, in full; not copies in one process."""
        trained = trained_weights(self.model)
        return trained if self.share is None else self.share.gathered(list(trained))

    def merged(self, weights: Weights | None = None) -> Weights:
        """All weights of the same policy without adapters, by the model's own names, from these `weights`."""
        names = [name for name, _ in self.model.named_parameters()]
        base = None if self.share is None else self.share.gathered(names)
        return merged(self.model, self.weights if weights is None else weights, base)

    def plain_model(self) -> Any:
        """The model itself, or, where it has adapters or is shared out, another one with the same logits."""
        if self.share is None and not has_adapters(self.model):
            return self.model
        return with_weights(self.model, self.merged())


def load_policy(config: ModelConfig, *, device: str, lora: LoraConfig | None = None, seed: int = 0) -> Policy:
    """Load model and tokenizer; code that a model folder may hold is never run.

    With `lora` the model is frozen and gets adapters, of which `seed` decides the first values.

    Raises ConfigError naming what is wrong: an architecture that transformers does not have, weights that are
    missing or not finite, a tokenizer without end token or with more tokens than the model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    folder = model_folder(config)
    name = f"model.path = {config.path!r}"
    _refuse_foreign_code(folder, name)
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except Exception as error:  # The user's own files may make the libraries raise anything.
        raise ConfigError(f"{name} cannot be loaded: {error}") from error
    model, loading = loaded
    if missing := sorted(loading["missing_keys"]):
        raise ConfigError(f"{name}: the weights lack {', '.join(missing[:3])}; save the whole model anew")
    _check_model(model, name)
    _check_tokenizer(tokenizer, model, name)
    if lora is not None:
        add_adapters(model, lora, seed=seed)
    pad = tokenizer.pad_token_id
    return Policy(
        model.to(device), tokenizer, tokenizer.eos_token_id, tokenizer.eos_token_id if pad is None else pad
    )


def save_policy(policy: Policy, folder: Path) -> None:
    """Save model (safetensors) and tokenizer as a Hugging Face model folder, adapters merged into the weights."""
    from safetensors import SafetensorError

    try:
        policy.plain_model().save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
    except SafetensorError as error:  # safetensors wraps the operating system's errors.
        raise EnvironmentFailedError(
            f"{folder}: the policy cannot be saved ({error}); is there space left?"
        ) from error


def _refuse_foreign_code(folder: Path, name: str) -> None:
    """A folder may name Python files of its own; where transformers has the architecture they are not needed."""
    from transformers import CONFIG_MAPPING

    shape = read_shape(folder)
    kind = shape.get("model_type")
    if "auto_map" in shape and kind not in CONFIG_MAPPING:
        raise ConfigError(
            f"{name}: model_type = {kind!r} needs Python code of its own (auto_map in config.json), which is never "
            "run; choose an architecture that transformers has"
        )


def _check_model(model: Any, name: str) -> None:
    broken = [key for key, weight in model.named_parameters() if not bool(weight.isfinite().all())]
    if broken:
        raise ConfigError(f"{name}: {broken[0]} holds NaN or infinite weights; use another checkpoint")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise ConfigError(
            f"{name}: {type(model).__name__} is no plain causal language model (logits_to_keep)"
        )


def _check_tokenizer(tokenizer: Any, model: Any, name: str) -> None:
    """Ids that only the model has may be sampled, by every engine alike, and decode to nothing."""
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"{name}: the tokenizer has no end token; set eos_token in tokenizer_config.json")
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    known = max(tokenizer.get_vocab().values()) + 1
    if known > vocabulary:
        raise ConfigError(
            f"{name}: the tokenizer has {known} tokens, the model {vocabulary}: take the tokenizer that the model "
            "was trained with, or resize the model (model.resize_token_embeddings) and save it"
        )
    if known < (1 - UNUSED_SHARE) * vocabulary:
        warnings.warn(
            f"{name}: {vocabulary - known} of {vocabulary} ids of the model have no token; they may be sampled and "
            "then decode to empty text",
            stacklevel=3,
        )


__all__ = [
    "EMBEDDED_FOLDER",
    "Policy",
    "load_policy",
    "model_digest",
    "model_folder",
    "save_policy",
    "trained_weights",
]
