"""What can be found wrong before anything is launched or written."""

from __future__ import annotations

from calibrator.study.config import StudyConfig
from calibrator.sweep.estimate import longest_run
from calibrator.sweep.executor import Slots
from trainer.machine import host_memory
from trainer.models import model_folder
from trainer.models.memory import check_memory
from trainer.tasks import load_task


def check_inputs(config: StudyConfig) -> None:
    """Raises ConfigError naming the key when the model or the task cannot be used.

    A model that is given by name and may be downloaded is fetched here: trials never use the network.
    """
    model_folder(config.model)
    load_task(config.task)


def check_fit(config: StudyConfig, slots: Slots) -> None:
    """Raises ConfigError when the trials that would run at a time do not fit into this machine's memory.

    Trials on GPUs look at their own device when they start, before they load anything.
    """
    on_cpu = sum(not devices for devices in slots.devices)
    if on_cpu:
        check_memory(longest_run(config), available=host_memory(), at_a_time=on_cpu)
