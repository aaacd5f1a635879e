"""Where a model lies: a folder, the local Hugging Face cache, or, when the user asks for it, the hub. No torch here."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from trainer.config import EMBEDDED, ModelConfig
from trainer.errors import ConfigError, EnvironmentFailedError

EMBEDDED_FOLDER = Path(__file__).parent / "embedded"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DIGESTED = (".safetensors", ".json", ".model", ".txt", ".jinja")
FETCHED = ("*.safetensors", "*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken")
NOT_FETCHED = ("*/*", "consolidated*")
"""Copies of the weights in other layouts, which some repositories keep beside those for transformers."""
NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*", re.ASCII)


def model_folder(config: ModelConfig) -> Path:
    """Folder of the model: an existing folder comes first, then `owner/name` is looked up in the local cache.

    With `download` a name that is not in the cache is fetched there once; nothing else ever uses the network. Raises
    ConfigError naming `model.path` and what is missing, EnvironmentFailedError when the hub cannot be reached.
    """
    folder = EMBEDDED_FOLDER if config.path == EMBEDDED else _existing(config.path)
    if folder is None and NAME.fullmatch(config.path):
        folder = _cached(config)
        if config.download and (folder is None or what_is_missing(folder)):
            folder = _fetch(config)
        if folder is None:
            at = f" at revision {config.revision!r}" if config.revision else ""
            raise ConfigError(
                f"model.path = {config.path!r}: no such folder, and not in the local Hugging Face cache{at}; set "
                "model.download = true to fetch it from the hub, or give a model folder"
            )
    if folder is None:
        raise ConfigError(
            f"model.path = {config.path!r}: no such folder; give a Hugging Face model folder, owner/name of a model "
            f"on the hub, or {EMBEDDED!r}"
        )
    if missing := what_is_missing(folder):
        raise ConfigError(f"model.path = {config.path!r}: {missing}")
    return folder


def what_is_missing(folder: Path) -> str | None:
    """What keeps `folder` from being a model folder, with the remedy; None when nothing does."""
    if not (folder / "config.json").is_file():
        return f"{folder / 'config.json'} is missing; is it a model folder?"
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return "the folder has no tokenizer; save one there (tokenizer.json)"
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        found = f", only {pickles[0]}, a pickle, which could run any code" if pickles else ""
        return (
            f"no {WEIGHTS}{found}; other weight formats are never read: save the model as safetensors "
            "(model.save_pretrained)"
        )
    absent = [path.name for path in weight_files(folder) if not path.is_file()]
    return f"{', '.join(absent[:3])} of {INDEX} is missing; copy the whole model" if absent else None


def weight_files(folder: Path) -> list[Path]:
    """Files that hold the weights: those of the index of a sharded checkpoint, or the one file."""
    index = folder / INDEX
    if not index.is_file():
        return [folder / WEIGHTS]
    try:
        names = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"model.path: {index} cannot be read ({error}); save the model anew") from error
    return [folder / Path(name).name for name in names]


def read_shape(folder: Path) -> dict[str, Any]:
    """Content of config.json. Raises ConfigError when it holds no JSON object."""
    path = folder / "config.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"model.path: {path} holds no JSON object ({error}); save the model anew"
        ) from error


def model_digest(config: ModelConfig) -> str:
    """First 16 hexadecimal digits of a SHA-256 over the weights, the config and the tokenizer."""
    summary = hashlib.sha256()
    for path in sorted(model_folder(config).iterdir()):
        if path.suffix in DIGESTED:
            summary.update(path.name.encode())
            with path.open("rb") as file:
                summary.update(hashlib.file_digest(file, "sha256").digest())
    return summary.hexdigest()[:16]


def _existing(path: str) -> Path | None:
    try:
        folder = Path(path).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # an unknown user, a name that is too long, a null byte
        return None


def _cached(config: ModelConfig) -> Path | None:
    """Snapshot of the model in the local cache, which may lack files; the network is not used."""
    from huggingface_hub.errors import HFValidationError, IncompleteSnapshotError, LocalEntryNotFoundError

    try:
        return _snapshot(config, local_files_only=True)
    except IncompleteSnapshotError as error:
        return Path(error.snapshot_path)
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise ConfigError(f"model.path = {config.path!r} is no name on the hub: {error}") from error


def _fetch(config: ModelConfig) -> Path:
    from huggingface_hub import errors

    name = f"model.path = {config.path!r}"
    try:
        return _snapshot(config, local_files_only=False)
    except errors.GatedRepoError as error:
        raise ConfigError(
            f"{name}: the hub asks you to accept its licence first; do so on its page and run `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(f"{name}: the hub knows no model.revision = {config.revision!r}") from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(f"{name}: the hub knows no such model, or not for you; check the name") from error
    except Exception as error:  # The client lets errors of its HTTP library through, whichever it is.
        raise EnvironmentFailedError(
            f"{name} could not be fetched from the hub ({type(error).__name__}): is there a network, HF_HUB_OFFLINE "
            "unset, and space on the disk? Or give a model folder"
        ) from error


def _snapshot(config: ModelConfig, *, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            config.path,
            revision=config.revision,
            allow_patterns=list(FETCHED),
            ignore_patterns=list(NOT_FETCHED),
            local_files_only=local_files_only,
        )
    )
