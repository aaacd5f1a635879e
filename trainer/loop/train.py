"""One training run in its folder, by either schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from trainer.config import RunConfig
from trainer.files import disk_errors
from trainer.loop.lockstep import lockstep
from trainer.loop.overlap import overlap
from trainer.loop.session import OnRow, Session
from trainer.models import save_policy
from trainer.summary import RunSummary

SCHEDULES: dict[str, Callable[[Session], tuple[int, str]]] = {"lockstep": lockstep, "overlap": overlap}


def train(
    config: RunConfig,
    folder: Path,
    *,
    on_row: OnRow | None = None,
    device: str | None = None,
    policy_folder: Path | None = None,
) -> RunSummary:
    """Make the run of `config` in `folder`, or go on with the one that was interrupted there.

    The trained policy is saved to `policy_folder`, if given, as a Hugging Face model folder.

    Raises ConfigError for input that is wrong, EnvironmentFailedError when the disk is full or not writable, or a
    process of the run dies.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        session = Session(config, folder, device, on_row or (lambda rows: False))
        try:
            session.begin()
            summary = session.finish(*SCHEDULES[config.schedule](session))
            if policy_folder is not None:
                save_policy(session.policy, policy_folder)
            return summary
        finally:
            session.recorder.close()
