from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

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


MakeModel = Callable[..., Path]


def load(folder: Path) -> Any:
    return load_policy(ModelConfig(path=str(folder)), device="cpu")


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys, or drop those given as None."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_tied_embeddings_survive_saving(tmp_path: Path, make_model: MakeModel) -> None:
    policy = load(make_model(tmp_path / "model", tie_word_embeddings=True))
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(2.0)
    save_policy(policy, tmp_path / "saved")
    again = load(tmp_path / "saved").model
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert torch.equal(again.lm_head.weight, policy.model.lm_head.weight)


def test_a_tokenizer_without_end_token_is_refused(copy: Path) -> None:
    edit_json(copy / "tokenizer_config.json", eos_token=None)
    with pytest.raises(ConfigError, match=r"no end token; set eos_token"):
        load(copy)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model(tmp_path / "model", vocab_size=11, eos_token_id=10)
    with pytest.raises(ConfigError, match="tokenizer has 13 tokens, the model 11"):
        load(folder)


def test_ids_without_a_token_are_said_and_decode_to_nothing(tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model(tmp_path / "model", vocab_size=64)
    with pytest.warns(UserWarning, match="51 of 64 ids of the model have no token"):
        policy = load(folder)
    assert policy.tokenizer.batch_decode([[40, 63], [1, 40]], skip_special_tokens=True)[0] == ""
    assert policy.tokenizer.decode([1, 40, 2]) == policy.tokenizer.decode([1, 2])


def test_nan_weights_are_refused_by_name(tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model(tmp_path / "model", edit=lambda model: model.model.norm.weight.fill_(float("nan")))
    with pytest.raises(ConfigError, match=r"model\.norm\.weight holds NaN"):
        load(folder)


def test_weights_that_lack_a_part_are_refused(copy: Path) -> None:
    edit_json(copy / "config.json", num_hidden_layers=3, layer_types=["full_attention"] * 3)
    with pytest.raises(ConfigError, match=r"the weights lack model\.layers\.2"):
        load(copy)


def test_a_model_that_needs_code_of_its_own_is_refused_and_the_code_not_run(
    copy: Path, tmp_path: Path
) -> None:
    (copy / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    edit_json(copy / "config.json", model_type="own", auto_map={"AutoModelForCausalLM": "own.Model"})
    with pytest.raises(ConfigError, match=r"auto_map in config\.json.*never run"):
        load(copy)
    assert not (tmp_path / "ran").exists()


def test_a_tokenizers_own_code_is_not_run(copy: Path, tmp_path: Path) -> None:
    (copy / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    edit_json(copy / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.T", None]})
    assert load(copy).eos == 12
    assert not (tmp_path / "ran").exists()


def test_a_model_that_transformers_has_needs_no_code_of_its_own(copy: Path) -> None:
    edit_json(copy / "config.json", auto_map={"AutoModelForCausalLM": "own.Model"})
    assert load(copy).eos == 12


def test_a_model_that_is_no_language_model_is_refused(copy: Path) -> None:
    edit_json(copy / "config.json", model_type="vit")
    with pytest.raises(ConfigError, match=r"model\.path"):
        load(copy)
