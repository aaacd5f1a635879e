"""What a file holds besides its rows, and errors that all formats share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from calibrator.errors import LogError
from calibrator.runlogs.table import LogTable

MIB = 1 << 20
BLOCK = 4 * MIB
LONGEST_LINE = 32 * MIB
LARGEST_DOCUMENT = 256 * MIB
"""A log that is one JSON document is held in memory as a whole."""


@dataclass
class Source:
    """A log as rows, before anything is known about what they mean."""

    table: LogTable
    form: str
    """`jsonl`, `verl-console`, `trl-console`, `console`, `trl`, `json`, `csv` or `tensorboard`."""
    notes: list[str] = field(default_factory=list)
    last_step: int | None = None
    """Planned last step, where the log says so."""
    nan_may_be_a_gap: bool = False
    """Whether NaN is also how this format writes that a row does not have a column."""
    rounded: bool = False
    """Whether all numbers were printed with three decimals."""


def read_whole(path: Path) -> str:
    """The text of a small enough file. Raises LogError."""
    if path.stat().st_size > LARGEST_DOCUMENT:
        raise LogError(
            f"{path} is over {LARGEST_DOCUMENT // MIB} MiB of UTF-16 or one JSON document; give JSON lines instead"
        )
    return decode(path.read_bytes())


def decode(data: bytes) -> str:
    """Text of a log: UTF-8, or UTF-16 where it says so; bytes that are neither become replacement marks."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


def line_blocks(path: Path) -> Iterator[tuple[list[bytes], bool]]:
    """Lines without their ends, block by block, and whether the last one of the block was torn off at the end.

    Raises LogError for a line that no log has.
    """
    with path.open("rb") as file:
        mark = file.read(3)
        if mark[:2] in (b"\xff\xfe", b"\xfe\xff"):
            lines = read_whole(path).encode().split(b"\n")
            yield lines, bool(lines[-1].strip())
            return
        file.seek(3 if mark == b"\xef\xbb\xbf" else 0)
        rest = b""
        while block := file.read(BLOCK):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > LONGEST_LINE:
                raise LogError(
                    f"{path} has a line of over {LONGEST_LINE // MIB} MiB; that is no log of metrics"
                )
            yield lines, False
        if rest.strip(b" \t\r\0"):
            yield [rest], True
