"""Where answers go."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console


class AnswerConsole(Console):
    """Standard output. A reader that is gone (`| head`) is no failure of ours; see `answers_errors`."""

    def on_broken_pipe(self) -> NoReturn:
        """rich would end the program with exit code 1."""
        raise BrokenPipeError
