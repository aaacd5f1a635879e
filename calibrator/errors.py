"""Errors that the calibrator raises on purpose, each with the exit code of the command that meets it."""

from enum import IntEnum


class ExitCode(IntEnum):
    RECOMMENDED = 0
    BUG = 1
    USAGE = 2
    INCONCLUSIVE = 3
    BUDGET_SPENT = 4
    ENVIRONMENT = 5
    INTERRUPTED = 130


class CalibratorError(Exception):
    """Base of the errors below. The text names the key or file and the remedy; no traceback is shown."""

    exit_code = ExitCode.USAGE


class StudyConfigError(CalibratorError):
    """study.toml or an option of the command is wrong."""


class StudyMismatchError(CalibratorError):
    """The study folder holds trials that were made with another configuration."""


class LogError(CalibratorError):
    """The log of a run cannot be read, or does not tell what was asked; the text says what to pass."""


class CorruptStudyError(CalibratorError):
    """A file of the study folder cannot be read back."""


class NothingToSayError(CalibratorError):
    """The runs cannot identify what was asked for; the text says what to run next."""

    exit_code = ExitCode.INCONCLUSIVE


class MachineError(CalibratorError):
    """The machine failed: folder not writable, no space left, a worker died."""

    exit_code = ExitCode.ENVIRONMENT
