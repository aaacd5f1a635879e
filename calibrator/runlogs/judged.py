"""A log with its verdict, and the run that the laws are fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibrator.laws.types import Run
from calibrator.runlogs.read import ReadLog, read_log
from calibrator.runlogs.settings import LogSettings
from calibrator.verdicts.judge import judge
from calibrator.verdicts.types import RunVerdict


@dataclass(frozen=True)
class JudgedLog:
    """A log that was read and judged."""

    path: Path
    settings: LogSettings
    log: ReadLog
    verdict: RunVerdict

    def run(self) -> Run:
        """The run as a row of RUNS.csv. Raises LogError when the learning rate is not known."""
        raise NotImplementedError


def judge_log(path: Path, settings: LogSettings) -> JudgedLog:
    """Read and judge one log. Raises LogError."""
    log = read_log(path, settings)
    return JudgedLog(path, settings, log, judge(log.curve, log.judge))


def run_of_log(path: Path, settings: LogSettings) -> Run:
    """One log as the laws see it. Raises LogError."""
    return judge_log(path, settings).run()
