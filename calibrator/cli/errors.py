"""Errors on purpose become one line on stderr and an exit code; a bug keeps its traceback."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

import typer

from calibrator.errors import CalibratorError, ExitCode
from trainer.errors import EnvironmentFailedError, TrainerError

INTERRUPTING = (signal.SIGINT, signal.SIGTERM)

P = ParamSpec("P")
R = TypeVar("R")


def answers_errors(command: Callable[P, R]) -> Callable[P, R | None]:
    """Wrap a command of the command line."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R | None:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by the shell (`>&-`): nobody wants what is written there
                setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (open to the end)
        for number in INTERRUPTING:
            signal.signal(number, _interrupt)
        try:
            return command(*args, **kwargs)
        except CalibratorError as error:
            _end(str(error), error.exit_code)
        except EnvironmentFailedError as error:
            _end(str(error), ExitCode.ENVIRONMENT)
        except TrainerError as error:
            _end(str(error), ExitCode.USAGE)
        except BrokenPipeError:
            # The reader of our output is gone (`| head`); what was asked for is on disk.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            if error.errno is None:
                raise
            _end(
                f"{error.filename or 'the output'}: {error.strerror}; choose another place",
                ExitCode.ENVIRONMENT,
            )
        except KeyboardInterrupt:
            _end(
                "interrupted; what was finished is saved, run the same command again to continue",
                ExitCode.INTERRUPTED,
            )

        return None

    return wrapped


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in INTERRUPTING:  # what is under way ends in order; a second Ctrl-C would tear that
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end(message: str, code: ExitCode) -> NoReturn:
    """Control characters of user input must not reach the terminal; the message stays on one line."""
    clean = "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" for char in message.replace("\n", " ")
    )
    print(f"calibrate: {clean}", file=sys.stderr)
    raise typer.Exit(int(code))
