from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainer.config import ModelConfig
from trainer.errors import ConfigError
from trainer.models import EMBEDDED_FOLDER, load_policy, model_digest, model_folder, save_policy


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED_FOLDER, tmp_path / "model"))


def test_embedded_policy_is_small_and_about_10_to_the_5_parameters() -> None:
    policy = load_policy(ModelConfig(), device="cpu")
    assert 5e4 < sum(p.numel() for p in policy.model.parameters()) < 2e5
    assert sum(path.stat().st_size for path in EMBEDDED_FOLDER.iterdir()) < 1_000_000


def test_missing_folder_is_named() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        model_folder(ModelConfig(path="nowhere"))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("tokenizer*", "no tokenizer"), ("config.json", "config.json"), ("*.safetensors", "safetensors")],
)
def test_incomplete_model_folder_says_what_is_missing(copy: Path, pattern: str, words: str) -> None:
    for path in copy.glob(pattern):
        path.unlink()
    with pytest.raises(ConfigError, match=words):
        model_folder(ModelConfig(path=str(copy)))


def test_broken_weights_are_an_error_naming_the_key(copy: Path) -> None:
    (copy / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ConfigError, match=r"model\.path"):
        load_policy(ModelConfig(path=str(copy)), device="cpu")


def test_digest_follows_the_weights(copy: Path) -> None:
    before = model_digest(ModelConfig(path=str(copy)))
    assert before == model_digest(ModelConfig())
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    assert model_digest(ModelConfig(path=str(copy))) != before


def test_saved_policy_is_a_model_folder(tmp_path: Path) -> None:
    save_policy(load_policy(ModelConfig(), device="cpu"), tmp_path)
    again = load_policy(ModelConfig(path=str(tmp_path)), device="cpu")
    assert again.eos == load_policy(ModelConfig(), device="cpu").eos
