"""Why a file holds no rows: the likely cause, by its first bytes."""

from __future__ import annotations

import re
from pathlib import Path

from calibrator.runlogs.formats.source import decode

HEAD = 4096
PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
MOST_ODD = 0.05
"""Share of characters that no text has, beyond which bytes are none."""
_PAGE = re.compile(r"\s*<(!doctype|html|\?xml|head|body)\b", re.IGNORECASE)
_ODD = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")


def likely_cause(path: Path) -> str:
    """What the file at `path`, in which no row was understood, seems to be."""
    if path.is_dir():
        return "no rows of numbers in this folder are understood"
    with path.open("rb") as file:
        head = file.read(HEAD)
    for mark, name in PACKED.items():
        if head.startswith(mark):
            return f"the file is compressed ({name}): unpack it and name what comes out"
    text = decode(head)
    if _PAGE.match(text):
        return "the file is a web page or XML, not a log: download the log itself"
    if len(_ODD.findall(text)) > MOST_ODD * len(text):
        return "the file is binary, not a log of text (docs/logs.md lists the formats)"
    return "the file holds text, but no rows of numbers that are understood (docs/logs.md lists the formats)"
