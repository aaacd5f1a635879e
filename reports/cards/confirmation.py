"""Card of `calibrate confirm`: what was predicted beside what happened."""

from __future__ import annotations

import shlex
from collections import Counter

from calibrator.advice.prediction import CheckedSetting, ConfirmationRecord
from reports.cards.blocks import Block, Card, Check, Checks, Code, Column, Paragraph, Table
from reports.numbers import count, fixed, interval, listing, name, percent, plural, rate

_COLUMNS = (
    Column("setting"),
    Column("S", "number", origin="derived"),
    Column("eta", "number", origin="derived"),
    Column("P(collapse by T)", "number", origin="derived"),
    Column("predicted", "number", origin="derived"),
    Column("observed", "number", origin="measured"),
    Column("verdicts", wide_only=True),
)


def confirmation_cards(record: ConfirmationRecord, folder: str, again: str) -> tuple[Card, ...]:
    """Predicted beside observed, and what to do with it; `again` is the command that asks the same question anew."""
    if record.as_predicted:
        command = f"calibrate train --from {shlex.quote(folder)}"
        text = (
            f"The recommendation stands. These runs belong to the study from now on: `{again}` takes them into its "
            "fit, and what it then says may differ a little and is not confirmed."
        )
    else:
        command = again
        text = "These runs belong to the study from now on: ask for a recommendation that takes them into account."
    return (confirmation_card(record), Card("next", "Next", (Paragraph(text), Code(command))))


def confirmation_card(record: ConfirmationRecord) -> Card:
    """Predicted beside observed."""
    said = "As predicted." if record.as_predicted else "Not as predicted."
    blocks: list[Block] = [Paragraph(said, strong=True), _table(record)]
    blocks.append(Checks(tuple(_check(setting) for setting in record.settings)))
    return Card("confirmation", "Predicted and observed", tuple(blocks))


def _table(record: ConfirmationRecord) -> Table:
    level, horizon = fixed(record.settings[0].predicted.level), record.settings[0].horizon
    caption = (
        f"Collapses within T = {count(horizon)} updates with estimator {name(record.estimator)}; predicted: {level} "
        f"interval of the count from the {plural(record.fitted_runs, 'run')} that were there before"
    )
    return Table(caption, _COLUMNS, tuple(_row(setting) for setting in record.settings))


def _row(setting: CheckedSetting) -> tuple[str, ...]:
    tally = Counter(setting.verdicts)
    return (
        setting.role,
        count(setting.sync_interval),
        rate(setting.learning_rate),
        interval(setting.collapse_probability, percent),
        f"{_range(setting)} of {setting.predicted.runs}",
        f"{setting.collapsed} of {setting.predicted.runs}",
        listing([f"{number} {verdict}" for verdict, number in tally.items()]),
    )


def _check(setting: CheckedSetting) -> Check:
    counted = setting.predicted.runs
    open_ = len(setting.verdicts) - counted
    tail = f" {plural(open_, 'run')} without a decisive verdict not counted." if open_ else ""
    if counted == 0:
        return Check("FAIL", setting.role, f"At eta = {rate(setting.learning_rate)} no run decides.{tail}")
    verb = "lie" if setting.collapsed != 1 else "lies"
    where = "in" if setting.inside else "outside"
    sentence = (
        f"At the {setting.role} eta = {rate(setting.learning_rate)}, {plural(setting.collapsed, 'collapse')} among "
        f"{plural(counted, 'run')} {verb} {where} the predicted {_range(setting)}.{tail}"
    )
    return Check("PASS" if setting.inside else "FAIL", setting.role, sentence)


def _range(setting: CheckedSetting) -> str:
    low, high = setting.predicted.low, setting.predicted.high
    return str(low) if low == high else f"{low} to {high}"
