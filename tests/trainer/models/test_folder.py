"""Names, the local cache, the hub (a local server that speaks its protocol), and which weights count."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from trainer.config import ModelConfig
from trainer.errors import ConfigError
from trainer.models import EMBEDDED_FOLDER, load_policy, model_digest, model_folder
from trainer.models.folder import weight_files
from trainer.models.memory import count_parameters

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty local Hugging Face cache."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


def store(cache: Path, name: str, *, revision: str = "main") -> Path:
    """Put the embedded model into the cache under `name`, as the hub's client lays it out."""
    root = cache / f"models--{name.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / revision).write_text(COMMIT)
    return Path(shutil.copytree(EMBEDDED_FOLDER, root / "snapshots" / COMMIT))


def test_a_name_is_found_in_the_local_cache(cache: Path) -> None:
    snapshot = store(cache, "some/model")
    assert model_folder(ModelConfig(path="some/model")) == snapshot
    assert model_digest(ModelConfig(path="some/model")) == model_digest(ModelConfig())
    assert load_policy(ModelConfig(path="some/model"), device="cpu").eos == 12


def test_a_revision_is_looked_up_by_its_name(cache: Path) -> None:
    snapshot = store(cache, "some/model", revision="v2")
    assert model_folder(ModelConfig(path="some/model", revision="v2")) == snapshot
    assert model_folder(ModelConfig(path="some/model", revision=COMMIT)) == snapshot
    with pytest.raises(ConfigError, match=r"'v3'.*model\.download = true"):
        model_folder(ModelConfig(path="some/model", revision="v3"))


def test_an_unknown_name_says_how_to_fetch_it(cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.download = true .* or give a model folder"):
        model_folder(ModelConfig(path="some/model"))


def test_a_half_fetched_model_says_what_is_missing(cache: Path) -> None:
    (store(cache, "some/model") / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no model\.safetensors"):
        model_folder(ModelConfig(path="some/model"))


def test_an_existing_folder_comes_before_a_name(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(cache, "some/model")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(EMBEDDED_FOLDER, tmp_path / "some" / "model")
    assert model_folder(ModelConfig(path="some/model")) == Path("some/model")


@pytest.mark.parametrize(
    "path", ["no/such/model", "../x/y", "/some/model", "x" * 300, "a\0b", "~nobody-here/x"]
)
def test_what_is_neither_folder_nor_name_is_no_such_folder(path: str) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        model_folder(ModelConfig(path=path))


class Hub(BaseHTTPRequestHandler):
    """One public model, `some/model`, and one that wants a licence accepted, `some/gated`."""

    asked: list[str]

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def answer(self, *, body: bool) -> None:
        self.asked.append(self.path)
        names = [path.name for path in EMBEDDED_FOLDER.iterdir()] + ["pytorch_model.bin", "original/x.json"]
        if self.path.startswith("/api/models/some/gated"):
            self.reply(403, b"{}", {"X-Error-Code": "GatedRepo"}, body=body)
        elif self.path.startswith("/api/models/some/model/revision/main"):
            self.reply(200, json.dumps({"id": "some/model", "sha": COMMIT}).encode(), {}, body=body)
        elif self.path.startswith(f"/api/models/some/model/tree/{COMMIT}"):
            files = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in names]
            self.reply(200, json.dumps(files).encode(), {}, body=body)
        elif self.path.startswith("/some/model/resolve/"):
            content = (EMBEDDED_FOLDER / self.path.rsplit("/", 1)[1]).read_bytes()
            tag = hashlib.sha256(content).hexdigest()
            self.reply(200, content, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}, body=body)
        else:
            self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body=body)

    def reply(self, code: int, content: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """The server says nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def fetch(model: ModelConfig, hub: str, cache: Path) -> str:
    """Resolve `model` in a process of its own, whose hub is `hub`; the class and text of an error, or the folder."""
    code = (
        "import sys\nfrom trainer.config import ModelConfig\nfrom trainer.models import model_folder\n"
        "try:\n    print(model_folder(ModelConfig.model_validate_json(sys.argv[1])))\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
        "print('torch' in sys.modules)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= {"HF_ENDPOINT": hub, "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", code, model.model_dump_json()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert answer.stdout.endswith("False\n"), answer.stdout
    return answer.stdout.removesuffix("False\n").strip()


def test_a_download_is_made_once_and_brings_no_pickle(hub: str, tmp_path: Path) -> None:
    model = ModelConfig(path="some/model", download=True)
    folder = Path(fetch(model, hub, tmp_path / "cache"))
    assert sorted(path.name for path in folder.iterdir()) == sorted(p.name for p in EMBEDDED_FOLDER.iterdir())
    assert not any("pytorch_model.bin" in path or "original" in path for path in Hub.asked)
    before = len(Hub.asked)
    assert Path(fetch(model, hub, tmp_path / "cache")) == folder
    assert len(Hub.asked) == before


def test_without_download_the_hub_is_never_asked(hub: str, tmp_path: Path) -> None:
    assert "model.download = true" in fetch(ModelConfig(path="some/model"), hub, tmp_path)
    assert Hub.asked == []


@pytest.mark.parametrize(
    ("path", "words"),
    [("some/gated", "ConfigError .*licence"), ("no/model", "ConfigError .*no such model")],
)
def test_what_the_hub_refuses_is_said(hub: str, tmp_path: Path, path: str, words: str) -> None:
    answer = fetch(ModelConfig(path=path, download=True), hub, tmp_path)
    assert re.search(words, answer), answer


def test_an_unreachable_hub_is_the_machines_failure(tmp_path: Path) -> None:
    answer = fetch(ModelConfig(path="some/model", download=True), "http://127.0.0.1:9", tmp_path)
    assert answer.startswith("EnvironmentFailedError")
    assert "is there a network" in answer


def test_a_sharded_checkpoint_is_read_whole(tmp_path: Path, make_model: Callable[..., Path]) -> None:
    folder = make_model(tmp_path / "model", shard="20KB")
    assert len(weight_files(folder)) > 1
    policy = load_policy(ModelConfig(path=str(folder)), device="cpu")
    assert count_parameters(folder) == sum(p.numel() for p in policy.model.parameters())
    weight_files(folder)[0].unlink()
    with pytest.raises(ConfigError, match="copy the whole model"):
        model_folder(ModelConfig(path=str(folder)))


def test_a_folder_with_pickled_weights_only_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EMBEDDED_FOLDER, tmp_path / "model"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"only pytorch_model\.bin, a pickle"):
        model_folder(ModelConfig(path=str(folder)))
