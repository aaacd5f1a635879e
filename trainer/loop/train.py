"""One training run in its folder, by either schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from trainer.config import RunConfig
from trainer.distributed.launch import team_of
from trainer.distributed.team import Team
from trainer.files import disk_errors
from trainer.loop.lockstep import lockstep
from trainer.loop.overlap import overlap
from trainer.loop.session import OnRow, Session
from trainer.metrics import MetricsRow
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
    processes: int = 1,
    team: Team | None = None,
) -> RunSummary:
    """Make the run of `config` in `folder`, or go on with the one that was interrupted there.

    With `processes` above 1 that many share the learner's weights; the others are started here, each with a GPU of its
    own where there are any. `team`: they have been started already, and this process leads them.

    The trained policy is saved to `policy_folder`, if given, as a Hugging Face model folder.

    Raises ConfigError for input that is wrong, EnvironmentFailedError when the disk is full or not writable, or a
    process of the run dies.
    """
    with disk_errors(folder), ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if team is None and processes > 1:
            team = stack.enter_context(team_of(processes, config, folder, device))
        session = Session(config, folder, device if team is None else team.device, on_row or _go_on, team)
        try:
            session.begin()
            summary = session.finish(*SCHEDULES[config.schedule](session))
            if policy_folder is not None:
                save_policy(session.policy, policy_folder)
            return summary
        finally:
            session.recorder.close()
            session.learner.close()


def _go_on(rows: Sequence[MetricsRow]) -> bool:
    return False
