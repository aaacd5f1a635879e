"""How a trial is judged, while it runs and afterwards; importable without torch."""

from __future__ import annotations

from calibrator.verdicts.settings import JudgeSettings
from trainer.config import RunConfig
from trainer.tasks import load_task


def trial_settings(config: RunConfig) -> JudgeSettings:
    """What the judge must know beside a trial's log. Raises ConfigError when its task cannot be loaded."""
    task = load_task(config.task)
    return JudgeSettings(
        reward_floor=task.reward_floor,
        full_marks=task.full_marks,
        sync_interval=config.sync_interval,
        horizon=config.updates,
    )
