"""Rewards from a task's `score`, whatever that does: raise, hang, or return what is no reward."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path

from trainer.config import TaskConfig
from trainer.errors import ConfigError, TrainerError
from trainer.tasks.patience import TimeUpError, call_within
from trainer.tasks.protocol import Task, Unscored

LOG = logging.getLogger("trainer.tasks")

SHORTENED = 200
"""Characters of a completion or reference that a message shows."""
TOLD = 3
"""Skipped completions of one call that are shown in full."""
DUST = 1e-6
"""Share of the range of rewards by which rounding may step over its ends."""


class BatchError(Exception):
    """The call as a whole gave no rewards; says why."""


@contextmanager
def users_code(task: Task, method: str) -> Iterator[None]:
    """Whatever a user's own task raises is theirs to mend: say where it came from, and that it was theirs."""
    try:
        yield
    except TrainerError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"task.name: {type(task).__name__}.{method} {described(error)}") from error


def described(error: BaseException) -> str:
    """What was raised, with the file and line that raised it."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"raised {type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"


def rewards(
    task: Task, completions: Sequence[str], references: Sequence[str], config: TaskConfig
) -> list[float]:
    """One reward for each completion; NaN for those that could not be scored and are skipped.

    One call scores all of them within `scoring_timeout` seconds each on average. When it raises, hangs or returns
    another number of rewards, they are scored one by one to find the one that it was. Raises ConfigError naming the
    sample: with `on_scoring_error = "stop"` for the first that has no finite reward, with `"skip"` when none has one,
    and in any case for a reward outside the range that the task declares.
    """
    stop = config.on_scoring_error == "stop"
    found = [
        _in_range(task, answer, completion, reference)
        for answer, completion, reference in zip(
            _answers(task, completions, references, config), completions, references, strict=True
        )
    ]
    failed = [index for index, answer in enumerate(found) if isinstance(answer, Unscored)]
    said = [
        f"{_who(task)} {answer.reason} for {_sample(completions[index], references[index])}"
        for index in failed[: 1 if stop else TOLD]
        if isinstance(answer := found[index], Unscored)
    ]
    if failed and stop:
        raise ConfigError(f'{said[0]}; mend the task, or set task.on_scoring_error = "skip" to leave it out')
    if failed and len(failed) == len(found):
        raise ConfigError(f"none of {len(found)} completions could be scored; the first: {said[0]}")
    for line in said:
        LOG.warning("skipped: %s", line)
    if len(failed) > TOLD:
        LOG.warning("skipped: %d more of %d completions", len(failed) - TOLD, len(found))
    return [math.nan if isinstance(answer, Unscored) else answer for answer in found]


def _answers(
    task: Task, completions: Sequence[str], references: Sequence[str], config: TaskConfig
) -> list[float | Unscored]:
    """The batch at once, or one by one when that fails; with "stop", no further than the first failure."""
    try:
        return _call(task, completions, references, config)
    except BatchError as error:
        whole = error
    found: list[float | Unscored] = []
    for completion, reference in zip(completions, references, strict=True):
        try:
            found += _call(task, [completion], [reference], config) if len(completions) > 1 else [_no(whole)]
        except BatchError as error:
            found.append(_no(error))
        if config.on_scoring_error == "stop" and isinstance(found[-1], Unscored):
            return found + [0.0] * (len(completions) - len(found))
    if not any(isinstance(answer, Unscored) for answer in found):
        if config.on_scoring_error == "stop":
            raise ConfigError(
                f"{_who(task)} {whole} for {len(completions)} completions, but for none of them alone"
            )
        LOG.warning(
            "%s %s for %d completions, but for none of them alone", _who(task), whole, len(completions)
        )
    return found


def _call(
    task: Task, completions: Sequence[str], references: Sequence[str], config: TaskConfig
) -> list[float | Unscored]:
    """One call of `score` within its time. Raises BatchError when it raises, hangs or returns another number."""
    limit = config.scoring_timeout * len(completions)
    try:
        if getattr(task, "keeps_time", False):
            answers = list(task.score(completions, references))
        else:
            answers = call_within(limit, lambda: list(task.score(completions, references)))
    except TimeUpError:
        raise BatchError(
            f"did not end within {limit:g} s (task.scoring_timeout for each completion)"
        ) from None
    except TrainerError:
        raise
    except (Exception, SystemExit) as error:
        raise BatchError(described(error)) from error
    if len(answers) != len(completions):
        raise BatchError(f"returned {len(answers)} rewards for {len(completions)} completions")
    return [_finite(answer) for answer in answers]


def _finite(answer: object) -> float | Unscored:
    if isinstance(answer, Unscored):
        return answer
    if not isinstance(answer, Real) or not math.isfinite(answer):
        return Unscored(f"returned {_shortened(answer)}, not a finite number,")
    return float(answer)


def _in_range(task: Task, answer: float | Unscored, completion: str, reference: str) -> float | Unscored:
    """Raises ConfigError for a reward that the task's own floor and full marks exclude: verdicts rest on them."""
    if isinstance(answer, Unscored):
        return answer
    floor, full = task.reward_floor, task.full_marks
    dust = DUST * (full - floor)
    # The floor is what guessing scores; one completion may do worse, but not by more than the whole scale.
    if not floor - (full - floor) - dust <= answer <= full + dust:
        raise ConfigError(
            f"{_who(task)} returned {answer:g} for {_sample(completion, reference)}, which does not fit "
            f"reward_floor = {floor:g} (what guessing scores) and full_marks = {full:g}: declare the scale of its "
            f"rewards in {type(task).__name__}"
        )
    return answer


def _no(error: BatchError) -> Unscored:
    return Unscored(str(error))


def _who(task: Task) -> str:
    return f"task.name: {type(task).__name__}.score"


def _sample(completion: str, reference: str) -> str:
    return f"{_shortened(completion)} (reference {_shortened(reference)})"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHORTENED else f"{text[:SHORTENED]}... ({len(text)} characters)"
