"""The supervised process and what is checked before vLLM starts: no vLLM needed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from pydantic import ValidationError

from trainer.config import RunConfig, TrainerConfig, VllmConfig
from trainer.engines import make_engine
from trainer.engines.hf import HfEngine
from trainer.engines.vllm import settings
from trainer.engines.vllm.process import ServerProcess
from trainer.engines.vllm.server import Placement, as_flags, place
from trainer.errors import ConfigError, EnvironmentFailedError
from trainer.models import Policy

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    for _ in range(300):
        if not alive(pid):
            return True
        time.sleep(0.1)
    return False


def server(tmp_path: Path, command: list[str]) -> ServerProcess:
    folder = tmp_path / "private"
    folder.mkdir()
    return ServerProcess(folder, tmp_path / "log", command, {"COLOUR": "blue"})


def test_close_ends_the_process_and_removes_folder_and_log(tmp_path: Path) -> None:
    process = server(tmp_path, SLEEPER)
    process.wait_until(lambda: "up" in process.log.read_text(), seconds=60)
    process.close()
    assert gone(process.pid)
    assert not process.folder.exists()
    assert not process.log.exists()


def test_a_process_that_dies_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    script = "import os; print('no ' + os.environ['COLOUR'] + ' device'); raise SystemExit(3)"
    process = server(tmp_path, [sys.executable, "-c", script])
    with pytest.raises(EnvironmentFailedError, match=r"(?s)server died.*no blue device"):
        process.wait_until(lambda: False, seconds=60)
    assert not process.folder.exists()


def test_a_process_that_is_not_up_in_time_is_ended(tmp_path: Path) -> None:
    process = server(tmp_path, SLEEPER)
    with pytest.raises(EnvironmentFailedError, match=r"vllm\.start_timeout = 0\.5 s"):
        process.wait_until(lambda: False, seconds=0.5)
    assert gone(process.pid)


def test_the_log_that_an_error_names_outlives_the_engine(tmp_path: Path) -> None:
    """Whoever runs an engine closes it, also after an error."""
    process = server(tmp_path, [sys.executable, "-c", "print('no memory')"])
    with pytest.raises(EnvironmentFailedError, match=re.escape(f"({process.log})")):
        process.wait_until(lambda: False, seconds=60)
    process.close()
    assert process.log.read_text() == "no memory\n"


PARENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from process import ServerProcess
process = ServerProcess(Path(sys.argv[2]), Path(sys.argv[3]), [sys.executable, "-c", sys.argv[4]], {})
print(process.pid, flush=True)
time.sleep(600)
"""

CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_nothing_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    folder, log = tmp_path / "private", tmp_path / "log"
    folder.mkdir()
    modules = Path(settings.__file__).parent
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(modules), str(folder), str(log), CHILD],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    supervisor = int(parent.stdout.readline())
    for _ in range(300):
        if log.exists() and log.read_text().strip():
            break
        time.sleep(0.1)
    child = int(log.read_text())
    assert alive(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(supervisor)
    assert gone(child)
    assert not folder.exists()


def test_a_port_in_use_is_named_before_anything_starts(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.engines.vllm.server.require_vllm", lambda name: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"vllm\.port = {port} .*choose another, or leave it out"):
            make_engine(policy, RunConfig(engine="vllm-server", vllm=VllmConfig(port=port)))


@pytest.mark.parametrize("name", ["vllm", "vllm-server"])
def test_vllm_missing_or_of_another_release(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config = RunConfig.model_validate({"engine": name})
    monkeypatch.setattr(settings, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match=rf"engine = '{name}' needs vLLM: pip install"):
        make_engine(policy, config)

    def another(distribution: str) -> str:
        if distribution == "vllm":
            raise metadata.PackageNotFoundError
        return "0.33.1"

    monkeypatch.setattr(settings, "find_spec", lambda module: object())
    monkeypatch.setattr(settings, "version", another)
    with pytest.raises(ConfigError, match=r"needs vLLM 0\.32\.x and found 0\.33\.1"):
        make_engine(policy, config)


def test_probes_are_sampled_by_transformers_whatever_the_engine(policy: Policy) -> None:
    engine = make_engine(policy, RunConfig(engine="vllm"), share_weights=True)
    assert isinstance(engine, HfEngine)


def test_longest_sequence_comes_from_the_limits_or_the_positions(policy: Policy) -> None:
    assert settings.max_length(policy, RunConfig()) == 64
    limited = RunConfig(trainer=TrainerConfig(prompt_limit=20, response_limit=9))
    assert settings.max_length(policy, limited) == 29
    for trainer in (TrainerConfig(response_limit=64), TrainerConfig(prompt_limit=60, response_limit=9)):
        with pytest.raises(ConfigError, match=r"trainer\.response_limit.*64 positions"):
            settings.max_length(policy, RunConfig(trainer=trainer))


def test_versions_come_from_spans() -> None:
    spans = [{"version": "3", "start": 0, "end": 2}, {"version": "7", "start": 2, "end": 3}]
    assert settings.versions_of(spans, 3) == [3, 3, 7]
    with pytest.raises(RuntimeError, match="without a weight version"):
        settings.versions_of(spans, 4)


@pytest.mark.parametrize(
    ("own", "visible", "transfer", "gpu", "shared", "sender"),
    [
        (None, [], "file", None, False, None),
        (None, ["0"], "file", "0", False, None),
        (0, ["5"], "ipc", "5", True, 0),
        (0, ["0", "1", "2"], "nccl", "2", False, 0),
        (1, ["0", "1", "2"], "nccl", "2", False, 1),
        (1, ["6", "7"], "nccl", "7", False, 0),  # the rollout worker's GPU is the server's too
    ],
)
def test_where_the_server_goes(
    *, own: int | None, visible: list[str], transfer: str, gpu: str | None, shared: bool, sender: int | None
) -> None:
    assert place(RunConfig(), own=own, visible=visible) == Placement(transfer, gpu, shared, sender)


def test_a_model_spread_over_gpus_leaves_the_first_to_the_learner() -> None:
    run = RunConfig(engine="vllm-server", vllm=VllmConfig(tensor_parallel=2))
    assert place(run, own=0, visible=["0", "1", "2"]) == Placement("nccl", "1,2", shared=False, sender=0)
    assert (
        place(run, own=1, visible=["0", "1", "2"]).sender == 0
    )  # the rollout worker's GPU is the server's too
    with pytest.raises(ConfigError, match=r"vllm\.tensor_parallel = 2 .* and 2 are visible"):
        place(run, own=0, visible=["0", "1"])
    with pytest.raises(ValidationError, match="vllm-server"):
        RunConfig(engine="vllm", vllm=VllmConfig(tensor_parallel=2))


def test_a_transfer_that_cannot_work_there_is_refused() -> None:
    nccl = RunConfig(vllm=VllmConfig(transfer="nccl"))
    with pytest.raises(ConfigError, match=r"vllm\.transfer = 'nccl' does not fit.*it is 'ipc'"):
        place(nccl, own=0, visible=["0"])
    assert place(nccl, own=0, visible=["0", "1"]).transfer == "nccl"
    with pytest.raises(ConfigError, match=r"vllm\.port = 8000.*any user of this machine"):
        place(RunConfig(vllm=VllmConfig(port=8000)), own=0, visible=["0"])


def test_flags_of_the_command_line() -> None:
    assert as_flags({"max_model_len": 64, "enforce_eager": True, "enable_sleep_mode": False}) == [
        "--max-model-len",
        "64",
        "--enforce-eager",
        "--no-enable-sleep-mode",
    ]
