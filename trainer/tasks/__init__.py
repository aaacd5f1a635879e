"""Tasks by name: built in, or the user's own as `module:Class`."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from numbers import Real
from pathlib import Path

from trainer.config import TaskConfig
from trainer.errors import ConfigError
from trainer.processes import current_folder_last
from trainer.tasks.gym import PREFIX, ReasoningGym
from trainer.tasks.jsonl import Jsonl
from trainer.tasks.protocol import Example, Task, Unscored
from trainer.tasks.running_sum import RunningSum

BUILT_IN: dict[str, Callable[..., Task]] = {"running-sum": RunningSum, "jsonl": Jsonl}

__all__ = ["BUILT_IN", "Example", "Task", "Unscored", "load_task"]


def load_task(config: TaskConfig) -> Task:
    """The task that `config` names. Raises ConfigError naming `task.name` or `task.options`."""
    factory = _factory(config)
    try:
        task = factory(**config.options)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # The user's own code may raise anything.
        raise ConfigError(
            f"task.options = {config.options} does not fit task {config.name!r}: {type(error).__name__}: {error}"
        ) from error
    missing = [name for name in ("prompts", "score", "reward_floor", "full_marks") if not hasattr(task, name)]
    if missing:
        raise ConfigError(f"task.name = {config.name!r}: the class has no {', '.join(missing)}")
    floor, full = task.reward_floor, task.full_marks
    if not (_is_number(floor) and _is_number(full) and floor < full):
        raise ConfigError(
            f"task.name = {config.name!r}: reward_floor = {floor!r} and full_marks = {full!r} must be numbers, "
            "the floor below full marks"
        )
    return task


def _factory(config: TaskConfig) -> Callable[..., Task]:
    if config.name.startswith(PREFIX):
        return partial(ReasoningGym, config.name.removeprefix(PREFIX))
    if config.name == "jsonl":
        return partial(Jsonl, scoring_timeout=config.scoring_timeout)
    return BUILT_IN.get(config.name) or _users_own(config.name)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _users_own(name: str) -> Callable[..., Task]:
    module_name, _, attribute = name.partition(":")
    if not attribute:
        known = ", ".join([*BUILT_IN, f"{PREFIX}NAME"])
        raise ConfigError(f"task.name = {name!r} is unknown: use one of {known}, or your own as module:Class")
    current_folder_last()
    try:
        factory: Callable[..., Task] = getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # The user's own code may raise anything.
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"task.name = {name!r} cannot be imported from {Path.cwd()}: {what}") from error
    return factory
