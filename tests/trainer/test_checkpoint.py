"""Checkpoints: last n kept, resume from the newest readable one, nothing pickled, atomic, float32 master weights."""

from __future__ import annotations

import ast
import pickle
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import Qwen3Config, Qwen3ForCausalLM

import calibrator
import trainer
from trainer.checkpoint import (
    Progress,
    checkpoint_path,
    checkpoints,
    load_checkpoint,
    remove_checkpoints,
    save_checkpoint,
)
from trainer.config import ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.errors import ConfigError
from trainer.loop.learner import Learner
from trainer.loop.train import train
from trainer.metrics import MetricsRow
from trainer.models import Policy

SMALL = TrainerConfig(group_size=4, prompts_per_update=2, warmup=4)


def config(**changes: Any) -> RunConfig:
    defaults: dict[str, Any] = {
        "trainer": SMALL,
        "probe": ProbeConfig(every=4, prompts=8),
        "task": TaskConfig(held_out=8),
        "sync_interval": 2,
        "updates": 8,
        "checkpoint_every": 2,
        "checkpoints_kept": 3,
    }
    return RunConfig(**{**defaults, **changes})


class KilledError(Exception):
    pass


def killed_at_7(seen: Sequence[MetricsRow]) -> bool:
    if len(seen) == 7:
        raise KilledError
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(config(), folder)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(KilledError):
        train(config(), folder, on_row=killed_at_7)
    return folder


@pytest.fixture
def cut(tmp_path: Path, killed: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path, dirs_exist_ok=True))


def updates(folder: Path) -> list[int]:
    return [int(path.stem.removeprefix("checkpoint-")) for path in checkpoints(folder)]


def shards(folder: Path) -> dict[str, bytes]:
    """Ratios by what they hold, not by where they are cut: one string of bytes a column."""
    parts = [load_file(path) for path in sorted(folder.glob("ratios-*"))]
    return {key: torch.cat([part[key] for part in parts]).numpy().tobytes() for key in parts[0]}


def test_the_newest_n_are_kept(cut: Path) -> None:
    assert updates(cut) == [2, 4, 6]
    assert not list(cut.glob(".*"))


@pytest.mark.parametrize(("broken", "how"), [(0, "whole"), (1, "torn"), (2, "pickled")])
def test_a_resume_falls_back_to_the_newest_readable_one(
    cut: Path, whole: Path, capsys: pytest.CaptureFixture[str], broken: int, how: str
) -> None:
    for path in checkpoints(cut)[3 - broken :]:
        path.write_bytes(path.read_bytes()[:-9] if how == "torn" else pickle.dumps({"model": [1.0]}))
    started: list[int] = []

    def note(seen: Sequence[MetricsRow]) -> bool:
        started.append(len(seen))
        return False

    train(config(), cut, on_row=note)
    assert started[0] == [7, 5, 3][broken]
    assert capsys.readouterr().err.count("cannot be read back") == broken
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert len((cut / "timings.jsonl").read_text().splitlines()) == 8
    assert [path.name for path in sorted(cut.glob("ratios-*"))] == [
        path.name for path in sorted(whole.glob("ratios-*"))
    ]
    assert shards(cut) == shards(whole)


def test_when_none_can_be_read_nothing_is_started(cut: Path) -> None:
    for path in checkpoints(cut):
        path.write_bytes(pickle.dumps({"progress": {"update": 4}}))
    with pytest.raises(ConfigError, match=r"checkpoint-000002.*delete them"):
        train(config(), cut)


class Planted:
    """What a pickle that is read would do."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("planted"),)


def test_a_planted_pickle_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint_path(tmp_path, 2).write_bytes(pickle.dumps(Planted()))
    torch.save({"update": 4}, tmp_path / "checkpoint-000004.safetensors")
    with pytest.raises(ConfigError, match="cannot be read back"):
        train(config(), tmp_path)
    assert not (tmp_path / "planted").exists()


def test_no_module_reads_pickles() -> None:
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for package in (trainer, calibrator):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name.split(".")[0] for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [str(node.module).split(".", maxsplit=1)[0]]
                    assert not (node.module == "torch" and {a.name for a in node.names} & {"load", "save"})
                assert not forbidden & set(names), path
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}, path


def test_metrics_that_lost_lines_are_named(cut: Path) -> None:
    (cut / "metrics.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl lacks lines"):
        train(config(), cut)


def test_a_bfloat16_run_keeps_float32_weights_and_resumes_exactly(tmp_path: Path) -> None:
    run = config(trainer=SMALL.model_copy(update={"dtype": "bfloat16"}))
    train(run, tmp_path / "whole")
    with pytest.raises(KilledError):
        train(run, tmp_path / "cut", on_row=killed_at_7)
    tensors = load_file(checkpoints(tmp_path / "cut")[-1])
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    train(run, tmp_path / "cut")
    assert (tmp_path / "cut/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def tied_model() -> Qwen3ForCausalLM:
    """Input and output embeddings are one tensor."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=8,
            hidden_size=4,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=4,
            tie_word_embeddings=True,
        )
    )


def tied_learner(steps: int) -> Learner:
    torch.manual_seed(steps)
    learner = Learner(Policy(tied_model(), None, 0, 0), SMALL)
    for _ in range(steps):
        learner.policy.model(input_ids=torch.arange(8).unsqueeze(0)).logits.square().mean().backward()
        learner.optimizer.param_groups[0]["lr"] = 0.1
        learner.optimizer.step()
    learner.previous_gradient = torch.ones(sum(parameter.numel() for parameter in learner.parameters))
    return learner


PROGRESS = Progress("digest", 3, 0, 0, None)


def test_tied_embeddings_are_kept_once_and_stay_tied(tmp_path: Path) -> None:
    saved, other = tied_learner(3), tied_learner(0)
    save_checkpoint(tmp_path, saved, PROGRESS)
    with safe_open(checkpoint_path(tmp_path, 3), framework="pt") as file:
        names = [name for name in file.keys() if name.startswith("model.")]  # noqa: SIM118
    assert len(names) == len(saved.parameters)
    assert not any("lm_head" in name for name in names)
    assert load_checkpoint(tmp_path, other, config="digest") == PROGRESS
    assert other.policy.model.lm_head.weight is other.policy.model.model.embed_tokens.weight
    assert torch.equal(
        other.policy.model.model.embed_tokens.weight, saved.policy.model.model.embed_tokens.weight
    )
    for key, value in saved.optimizer.state[saved.parameters[0]].items():
        assert torch.equal(other.optimizer.state[other.parameters[0]][key], value)


def test_tensors_of_another_shape_change_nothing(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, tied_learner(1), PROGRESS)
    other = tied_learner(0)
    other.policy.model.model.embed_tokens.weight.data = torch.zeros(1, 4)  # broadcasting would take it
    with pytest.raises(ConfigError, match="do not fit"):
        load_checkpoint(tmp_path, other, config="digest")
    assert not other.optimizer.state


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, tied_learner(1), PROGRESS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            save_checkpoint(tmp_path, tied_learner(1), Progress("digest", 4, 0, 0, None))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000003.safetensors"]


def test_remains_of_a_kill_and_finished_checkpoints_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint-000002.safetensors.tmp").write_bytes(b"part")
    save_checkpoint(tmp_path, tied_learner(1), PROGRESS)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000003.safetensors"]
    (tmp_path / "metrics.jsonl").touch()
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
