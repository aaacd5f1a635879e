"""Cards of what was run: every run with its verdict, cost, manifest and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from calibrator.advice.cost import CostModel
from calibrator.verdicts.types import Verdict
from reports.cards.blocks import Card, Column, Fact, Facts, Paragraph, Table
from reports.numbers import compact, count, name, rate, seconds, significant, span
from reports.view import RunView, StudyView

IN_THE_FIT = {
    Verdict.STABLE: "survivor",
    Verdict.COLLAPSED: "event",
    Verdict.DIVERGED: "event",
    Verdict.DEGRADED: "survivor, and as a death beside it",
    Verdict.UNTRAINED: "excluded",
    Verdict.INCONCLUSIVE: "excluded",
    Verdict.INTERRUPTED: "survivor",
}


def by_verdict_card(view: StudyView) -> Card:
    title = "Runs by verdict"
    if not view.runs:
        return Card("verdicts", title, (Paragraph("No run was judged."),))
    return Card("verdicts", title, (by_verdict_table(view),))


def by_verdict_table(view: StudyView) -> Table:
    tally = Counter((r.verdict.verdict, r.role) for r in view.runs)
    columns = (
        Column("verdict", "verdict"),
        Column("sweep", "number"),
        Column("confirmation", "number"),
        Column("in the fit"),
    )
    rows = tuple(
        (v.value, count(tally[v, "sweep"]), count(tally[v, "confirmation"]), IN_THE_FIT[v])
        for v in Verdict
        if tally[v, "sweep"] + tally[v, "confirmation"]
    )
    caption = f"{count(len(view.runs))} runs by verdict"
    if any(r.role == "confirmation" for r in view.runs):
        caption += "; those that confirm the recommendation come after its fit and are not in it"
    return Table(caption, columns, rows)


def runs_card(view: StudyView) -> Card:
    if not view.runs:
        return Card("runs", "Every run", (Paragraph("No run was judged."),))
    return Card("runs", "Every run", (by_verdict_table(view), _runs_table(view)))


def _runs_table(view: StudyView) -> Table:
    columns = (
        Column("trial", "number"),
        Column("verdict", "verdict"),
        Column("run"),
        Column("estimator"),
        Column("S", "number"),
        Column("lag", "number"),
        Column("eta", "number"),
        Column("seed", "number"),
        Column("updates", "number"),
        Column("L", "number"),
        Column("onset, updates", "number"),
        Column("L at onset", "number"),
        Column("evidence"),
    )
    caption = (
        "Intervals are (last good, first bad]; lag: the largest one before onset, updates; L: cumulative "
        "learning rate, LR x updates"
    )
    return Table(caption, columns, tuple(_run_row(r) for r in view.runs))


def _run_row(view: RunView) -> tuple[str, ...]:
    run, verdict = view.run, view.verdict
    title = name(run.run) + (" (confirmation)" if view.role == "confirmation" else "")
    return (
        str(view.trial),
        verdict.verdict.value,
        title,
        name(run.estimator),
        count(run.sync_interval),
        count(run.max_lag),
        rate(run.learning_rate),
        str(run.seed),
        count(run.updates),
        significant(run.cumulative_lr, 3),
        span(verdict.onset_updates),
        span(verdict.cumulative_lr_at_onset, significant),
        _evidence(view),
    )


def _evidence(view: RunView) -> str:
    sentences = [e.sentence for e in view.verdict.evidence]
    sentences += [f"Warning: {w}" for w in view.verdict.warnings]
    return " ".join(s if s.endswith((".", "!", "?")) else f"{s}." for s in sentences) or "-"


def phases(cost: CostModel) -> tuple[tuple[str, float, str], ...]:
    """Phase, seconds, and what the seconds are counted per."""
    return (
        ("generate", cost.generate, "per update"),
        ("score", cost.score, "per update"),
        ("learn", cost.learn, "per update"),
        ("synchronize", cost.synchronize, "per synchronization"),
    )


def cost_card(view: StudyView) -> Card:
    if view.cost is None:
        return Card(
            "cost", "Cost", (Paragraph("No step times were measured, so nothing is said about seconds."),)
        )
    how = {
        "colocated": "generation and learning take turns on the same devices",
        "separate": "generation and learning run side by side, and the slower one sets the pace",
    }[view.cost.placement]
    at = f"P = {view.cost.prompts_per_update}, G = {view.cost.group_size}"
    text = (
        f"Placement {view.cost.placement}: {how}. Times are {view.cost.origin}, at {at} and "
        f"{significant(view.cost.response_length)} response tokens on average."
    )
    intervals = sorted({r.run.sync_interval for r in view.runs} | {1})
    return Card("cost", "Cost", (Paragraph(text), _cost_table(view.cost), _pace_table(view.cost, intervals)))


def _cost_table(cost: CostModel) -> Table:
    columns = (Column("phase"), Column("time", "number"), Column("unit"), Column("origin", "origin"))
    rows = tuple((phase, seconds(s), per, cost.origin) for phase, s, per in phases(cost))
    return Table("Time by phase", columns, rows)


def _pace_table(cost: CostModel, intervals: list[int]) -> Table:
    columns = (
        Column("S", "number"),
        Column("time per update", "number"),
        Column("updates per hour", "number"),
    )
    paces = [(s, cost.seconds_per_update(s)) for s in intervals]
    rows = tuple((count(s), seconds(t), count(3600 / t) if t > 0 else "-") for s, t in paces)
    return Table("Time per update by sync interval", columns, rows)


def manifest_card(view: StudyView) -> Card:
    if not view.manifest:
        return Card("manifest", "Manifest", (Paragraph("The study holds no manifest."),))
    facts = tuple(Fact(name(key), value) for key, value in flatten(view.manifest))
    return Card("manifest", "Manifest", (Facts(facts),))


def flatten(record: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested mappings as dotted keys; lists on one line."""
    for key, value in record.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{path}.")
        else:
            yield path, _plain(value)


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return compact(value)
    if isinstance(value, int):
        return count(value) if abs(value) >= 10_000 else str(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(v) for v in value) or "-"
    return name(str(value))


def files_card(view: StudyView) -> Card:
    facts = [Fact("folder", name(view.folder))]
    if view.files:
        facts.append(Fact("files", ", ".join(name(f) for f in view.files)))
    return Card("files", "Files", (Facts(tuple(facts)),))
