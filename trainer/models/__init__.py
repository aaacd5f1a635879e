"""Policies: a Hugging Face causal language model with its tokenizer, from a folder or embedded in the package."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import EMBEDDED, ModelConfig
from trainer.errors import ConfigError, EnvironmentFailedError

EMBEDDED_FOLDER = Path(__file__).parent / "embedded"


@dataclass
class Policy:
    """A model in float32 master weights and what is needed to talk to it."""

    model: Any
    """transformers PreTrainedModel."""
    tokenizer: Any
    eos: int
    pad: int


def model_folder(config: ModelConfig) -> Path:
    """Folder of the model; raises ConfigError naming `model.path` when it cannot be one."""
    try:
        folder = EMBEDDED_FOLDER if config.path == EMBEDDED else Path(config.path).expanduser()
        found = folder.is_dir()
    except (OSError, RuntimeError, ValueError):  # an unknown user, a name that is too long, a null byte
        found = False
    if not found:
        raise ConfigError(
            f"model.path = {config.path!r}: no such folder; give a Hugging Face model folder or {EMBEDDED!r}"
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"model.path = {config.path!r}: {folder / 'config.json'} is missing; is it a model folder?"
        )
    if not any(
        (folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    ):
        raise ConfigError(
            f"model.path = {config.path!r}: the folder has no tokenizer; save one there (tokenizer.json)"
        )
    if not list(folder.glob("*.safetensors")):
        raise ConfigError(
            f"model.path = {config.path!r}: no *.safetensors file; other weight formats are not read"
        )
    return folder


def model_digest(config: ModelConfig) -> str:
    """First 16 hexadecimal digits of a SHA-256 over the weights, the config and the tokenizer."""
    summary = hashlib.sha256()
    for path in sorted(model_folder(config).iterdir()):
        if path.suffix in (".safetensors", ".json", ".model"):
            summary.update(path.name.encode())
            with path.open("rb") as file:
                summary.update(hashlib.file_digest(file, "sha256").digest())
    return summary.hexdigest()[:16]


def load_policy(config: ModelConfig, *, device: str) -> Policy:
    """Load model and tokenizer, nothing from the network. Raises ConfigError naming what is wrong."""
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    folder = model_folder(config)
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"model.path = {config.path!r} cannot be loaded: {error}") from error
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"model.path = {config.path!r}: the tokenizer has no end token; set eos_token")
    pad = tokenizer.pad_token_id
    return Policy(
        model.to(device), tokenizer, tokenizer.eos_token_id, tokenizer.eos_token_id if pad is None else pad
    )


def save_policy(policy: Policy, folder: Path) -> None:
    """Save model (safetensors) and tokenizer as a Hugging Face model folder."""
    from safetensors import SafetensorError

    try:
        policy.model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
    except SafetensorError as error:  # safetensors wraps the operating system's errors.
        raise EnvironmentFailedError(
            f"{folder}: the policy cannot be saved ({error}); is there space left?"
        ) from error


__all__ = ["EMBEDDED_FOLDER", "Policy", "load_policy", "model_digest", "model_folder", "save_policy"]
