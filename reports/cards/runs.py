"""Cards of what was run: runs by verdict, and every run with its evidence and its curve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from calibrator.verdicts.types import Verdict
from reports.cards.blocks import Card, Column, Paragraph, RunGroup, RunItem, Runs, Table
from reports.curves import reward_on_clock
from reports.numbers import count, name, plural, rate, significant, span
from reports.view import Role, RunView, StratumKey, StudyView

IN_THE_FIT = {
    Verdict.STABLE: "survivor",
    Verdict.COLLAPSED: "event",
    Verdict.DIVERGED: "event",
    Verdict.DEGRADED: "survivor, and as a death beside it",
    Verdict.UNTRAINED: "excluded",
    Verdict.INCONCLUSIVE: "excluded",
    Verdict.INTERRUPTED: "survivor",
}
GRAVITY = (
    Verdict.COLLAPSED,
    Verdict.DIVERGED,
    Verdict.DEGRADED,
    Verdict.INCONCLUSIVE,
    Verdict.INTERRUPTED,
    Verdict.UNTRAINED,
    Verdict.STABLE,
)
"""Order in which a reader wants the verdicts."""
TITLES: dict[Role, str] = {"sweep": "sweep", "confirmation": "confirmation", "check": "check"}
CURVE_POINTS = 40


def by_verdict_card(view: StudyView) -> Card:
    title = "Runs by verdict"
    if not view.runs:
        return Card("verdicts", title, (Paragraph("No run was judged."),))
    return Card("verdicts", title, (by_verdict_table(view),))


def by_verdict_table(view: StudyView) -> Table:
    tally = Counter((r.verdict.verdict, r.role) for r in view.runs)
    roles = [role for role in TITLES if role == "sweep" or any(r.role == role for r in view.runs)]
    columns = (
        Column("verdict", "verdict"),
        *(Column(TITLES[role], "number", origin="derived") for role in roles),
        Column("in the fit"),
    )
    rows = tuple(
        (v.value, *(count(tally[v, role]) for role in roles), IN_THE_FIT[v])
        for v in Verdict
        if any(tally[v, role] for role in roles)
    )
    caption = f"{plural(len(view.runs), 'run')} by verdict"
    if len(roles) > 1:
        caption += "; only those of the sweep are in the fit, the others were made to test what it says"
    return Table(caption, columns, rows)


def runs_card(view: StudyView) -> Card:
    if not view.runs:
        return Card("runs", "Every run", (Paragraph("No run was judged."),))
    legend = (
        "By verdict, then by S and eta. S, eta and the seed were set (assumed); updates, L, lag and reward are "
        "measured; verdict and onset are derived from them. Intervals are (last good, first bad]; L is the cumulative "
        "learning rate in LR x updates; a curve shows reward against L, with the onset shaded."
    )
    return Card("runs", "Every run", (by_verdict_table(view), Paragraph(legend), Runs(tuple(_groups(view)))))


def _groups(view: StudyView) -> Iterator[RunGroup]:
    for key in view.keys():  # noqa: SIM118
        for verdict in GRAVITY:
            rows = [row for row in view.runs_of(key) if row.verdict.verdict is verdict]
            if rows:
                ordered = sorted(rows, key=_place)
                yield RunGroup(
                    view.label(key), verdict.value, tuple(_item(view, key, row) for row in ordered)
                )


def _place(row: RunView) -> tuple[int, float, int]:
    return row.run.sync_interval, row.run.learning_rate, row.trial


def _item(view: StudyView, key: StratumKey, row: RunView) -> RunItem:
    run, verdict = row.run, row.verdict
    facts = [("S", count(run.sync_interval)), ("eta", rate(run.learning_rate)), ("seed", str(run.seed))]
    facts += [("L", significant(run.cumulative_lr, 3))]
    if row.key != key:  # a confirmation at another G or epsilon
        facts += [(name(k), name(v)) for k, v in row.key[1] if dict(key[1]).get(k) != v]
    details = [
        ("run", name(run.run) + ("" if row.role == "sweep" else f" ({row.role})")),
        ("updates", count(run.updates)),
        ("largest lag", count(run.max_lag)),
    ]
    if verdict.onset_updates is not None:
        details.append(("onset, updates", span(verdict.onset_updates)))
    if verdict.cumulative_lr_at_onset is not None:
        details.append(("L at onset", span(verdict.cumulative_lr_at_onset, significant)))
    return RunItem(
        trial=row.trial,
        verdict=verdict.verdict.value,
        facts=tuple(facts),
        details=tuple(details),
        evidence=tuple(_evidence(row)),
        curve=_points(row),
        onset=verdict.cumulative_lr_at_onset,
    )


def _points(row: RunView) -> tuple[tuple[float, float], ...]:
    total, value = reward_on_clock(row, CURVE_POINTS, start=True)
    return tuple((float(f"{x:.4g}"), float(f"{y:.4g}")) for x, y in zip(total, value, strict=True))


def _evidence(view: RunView) -> list[str]:
    sentences = [e.sentence for e in view.verdict.evidence]
    sentences += [f"Warning: {w}" for w in view.verdict.warnings]
    return [s if s.endswith((".", "!", "?")) else f"{s}." for s in sentences]
