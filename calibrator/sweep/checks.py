"""What can be found wrong before anything is launched or written."""

from __future__ import annotations

from calibrator.study.config import StudyConfig
from trainer.models import model_folder
from trainer.tasks import load_task


def check_inputs(config: StudyConfig) -> None:
    """Raises ConfigError naming the key when the model folder or the task cannot be used."""
    model_folder(config.model)
    load_task(config.task)
