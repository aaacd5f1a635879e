"""Where results come from: digests of the code, versions, hardware."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import calibrator
import trainer
from trainer.config import TaskConfig, digest
from trainer.errors import ConfigError
from trainer.processes import current_folder_last

LIBRARIES = (
    "torch",
    "transformers",
    "optuna",
    "scipy",
    "numpy",
    "scikit-learn",
    "reasoning-gym",
    "math-verify",
)
PACKAGES = ("grpo-calibrator", *LIBRARIES)


JUDGES = ("verdicts", "runlogs")
"""Folders of the calibrator whose code decides when a trial ends and how."""


@cache
def code_digest() -> str:
    """Digest of the code that makes and judges trials: a study is continued with no other."""
    judges = [Path(calibrator.__file__).parent / name for name in JUDGES]
    summary = hashlib.sha256()
    for root in [Path(trainer.__file__).parent, *judges]:
        for path in sorted(root.rglob("*.py")):
            summary.update(path.relative_to(root).as_posix().encode())
            summary.update(path.read_bytes())
    return summary.hexdigest()[:16]


def task_digest(config: TaskConfig) -> str:
    """Digest of the task's name and options, and of what its questions come from."""
    named = config.model_dump(mode="json", exclude={"scoring_timeout", "on_scoring_error"})
    return digest([named, hashlib.sha256(_task_source(config)).hexdigest()])


def _task_source(config: TaskConfig) -> bytes:
    """The data file of `jsonl`, the version of reasoning-gym, or the source file of a user's own task."""
    module, _, own = config.name.partition(":")
    if config.name == "jsonl":
        try:
            return Path(str(config.options.get("path"))).expanduser().read_bytes()
        except OSError as error:
            raise ConfigError(f"task.options.path cannot be read: {error}") from error
    if module == "reasoning-gym":
        return version("reasoning-gym").encode()
    current_folder_last()
    source = importlib.util.find_spec(module) if own else None
    return Path(source.origin).read_bytes() if source and source.origin else b""


def versions() -> dict[str, str]:
    """Installed versions, without importing the packages."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, GPUs by their device files."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": cores(),
        "gpus": gpu_count(),
    }


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_ids() -> list[str]:
    """Ids that trials may be given: CUDA_VISIBLE_DEVICES where it is set, else the device files."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [part.strip() for part in visible.split(",") if part.strip() not in ("", "-1")]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def gpu_count() -> int:
    return len(gpu_ids())


def git_commit() -> str | None:
    """Commit of the checkout that the package runs from; None for an installed package."""
    root = Path(trainer.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
