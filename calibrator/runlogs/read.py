"""From the log of any framework to a Curve, with everything said that had to be guessed."""

from __future__ import annotations

from pathlib import Path

from calibrator.errors import LogError
from calibrator.runlogs import names, own_reading
from calibrator.runlogs.formats.causes import likely_cause
from calibrator.runlogs.formats.detect import open_log
from calibrator.runlogs.frameworks import FRAMEWORKS, guess
from calibrator.runlogs.own_reading import OwnReading
from calibrator.runlogs.picks import pick
from calibrator.runlogs.reading import Reading, ReadLog
from calibrator.runlogs.settings import LogSettings
from calibrator.runlogs.table import LogTable

__all__ = ["ReadLog", "read_log"]


def read_log(path: Path, settings: LogSettings) -> ReadLog:
    """Read one log: a file of any format that is known, or a folder of TensorBoard event files.

    Raises LogError when the log cannot be read or understood; the text names the log and says what to pass.
    """
    column = settings.reward_column
    table = LogTable(lambda name: names.is_wanted(name) or name == column or names.plain(name) == column)
    source = open_log(path, table, settings.framework)
    if not table.numeric:
        raise LogError(f"{path}: {likely_cause(path)}")
    name = settings.framework or guess(source.form, table.numeric)
    try:
        picks = pick(table, column, FRAMEWORKS[name].hint)
        own = name == own_reading.NAME and table.columns.keys() >= own_reading.COLUMNS
        reading = OwnReading if own and picks.reward in own_reading.COLUMNS else Reading
        return reading(source, settings, name, picks).read()
    except LogError as error:
        raise LogError(f"{path}: {error}") from None
