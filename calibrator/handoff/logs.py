"""What a recommendation needs of the logs of trials: little, so that it can be kept beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from calibrator.advice.horizon import Measured
from calibrator.advice.progress import RewardCurve
from calibrator.advice.request import ObservedGain
from calibrator.errors import CorruptStudyError
from calibrator.laws.posterior import rounded
from calibrator.study.config import StudyConfig
from calibrator.study.results import METRICS, VERDICT, TrialResult
from calibrator.verdicts.types import Verdict

GAIN_STEP = 8
"""Probes of a run that one observed gain averages over: a single probe is too noisy to set a floor."""


class LogSummary(BaseModel):
    """Of one trial."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    """Of the log and the verdict that it was made from."""
    max_lag: int
    response_length: float | None
    """Mean number of response tokens."""
    start: float | None
    """Mean reward of the first cycle."""
    cumulative_lr: list[float] = []
    reward: list[float] = []
    se: list[float | None] = []
    """Of the held-out probes, with the L at which they were made."""


Logs = Mapping[int, LogSummary]
"""By number of the trial."""


def summaries(results: Sequence[TrialResult], kept: Logs | None = None) -> dict[int, LogSummary]:
    """One for each trial. Those in `kept` hold where log and verdict are still the same bytes."""
    found = {}
    for result in results:
        old = (kept or {}).get(result.number)
        digest = _digest(result)
        found[result.number] = old if old is not None and old.digest == digest else _summary(result, digest)
    return found


def observed_gains(results: Sequence[TrialResult], logs: Logs) -> tuple[ObservedGain, ...]:
    """How far stable runs had come at points of their curves, probes averaged in blocks."""
    gains = []
    for log in _stable(results, logs):
        reward, reached = np.array(log.reward), np.array(log.cumulative_lr)
        for begin in range(0, len(reward) - GAIN_STEP + 1, GAIN_STEP):
            block = slice(begin, begin + GAIN_STEP)
            gain = float(reward[block].mean()) - (log.start or 0.0)
            gains.append(ObservedGain(cumulative_lr=rounded(float(reached[block].mean())), gain=gain))
    return tuple(gains)


def reward_curves(results: Sequence[TrialResult], logs: Logs) -> list[RewardCurve]:
    """Probes of stable runs against L."""
    return [
        RewardCurve(
            result.config.sync_interval,
            np.array(log.cumulative_lr),
            np.array(log.reward),
            np.array(log.se, dtype=np.float64),
        )
        for result in results
        if result.verdict.verdict is Verdict.STABLE and (log := logs[result.number]).reward
    ]


def measured(config: StudyConfig, results: Sequence[TrialResult], logs: Logs) -> Measured:
    """What turns tokens and epochs into updates. Reads the data file of a `jsonl` task."""
    trainer = config.trainer
    lengths = [log.response_length for log in _stable(results, logs) if log.response_length is not None]
    batch = trainer.group_size * trainer.prompts_per_update
    return Measured(
        tokens_per_update=float(np.median(lengths)) * batch if lengths else None,
        data_set=_data_set(config),
        prompts_per_update=trainer.prompts_per_update,
    )


def response_length(logs: Logs) -> float:
    """Median over trials of the mean number of response tokens."""
    lengths = [log.response_length for log in logs.values() if log.response_length is not None]
    return float(f"{np.median(lengths):.4g}")


def _stable(results: Sequence[TrialResult], logs: Logs) -> list[LogSummary]:
    return [logs[result.number] for result in results if result.verdict.verdict is Verdict.STABLE]


def _data_set(config: StudyConfig) -> int | None:
    """Prompts for training of a `jsonl` task; other tasks have no end."""
    if config.task.name != "jsonl":
        return None
    from trainer.tasks.jsonl import read_rows, split

    options = {"question": "question", "answer": "answer", "held_out_share": 1 / 16, **config.task.options}
    path = str(options["path"])
    rows = read_rows(Path(path).expanduser(), str(options["question"]), str(options["answer"]))
    return len(split(rows, float(options["held_out_share"]), source=path)[False])


def _summary(result: TrialResult, digest: str) -> LogSummary:
    curve = result.curve
    lengths = curve.witnesses.get("response_length", np.empty(0))
    first = curve.rewards.value[: max(1, result.config.sync_interval)]
    probes = curve.probes
    return LogSummary(
        digest=digest,
        max_lag=result.max_lag,
        response_length=rounded(float(np.nanmean(lengths))) if np.isfinite(lengths).any() else None,
        start=float(first.mean()) if first.size else None,
        cumulative_lr=[] if probes is None else [curve.cumulative_lr(v) for v in probes.version],
        reward=[] if probes is None else probes.value.tolist(),
        se=[] if probes is None else [float(x) if np.isfinite(x) else None for x in probes.se],
    )


def _digest(result: TrialResult) -> str:
    summed = hashlib.blake2b(digest_size=16)
    for name in (METRICS, VERDICT):
        path = result.folder / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CorruptStudyError(
                f"{path} cannot be read ({error.strerror}); move {result.folder} away: the trial is run again, "
                "the others are kept"
            ) from error
        summed.update(len(content).to_bytes(8, "big") + content)
    return summed.hexdigest()
