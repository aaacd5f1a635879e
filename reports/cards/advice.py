"""Cards of the recommendation: what to set, how sure, what each interval allows, G and epsilon."""

from __future__ import annotations

import shlex

from calibrator.advice.suggest import CAPPED
from calibrator.advice.types import Confirmation, Objective, Origin, Recommendation, Rule, Suggested
from calibrator.laws.types import Estimate
from reports.cards.blocks import Block, Card, Code, Column, Fact, Facts, Paragraph, Setting, Settings, Table
from reports.cards.maps import map_blocks
from reports.numbers import (
    LR_UPDATES,
    compact,
    count,
    fixed,
    interval,
    listing,
    name,
    percent,
    plural,
    rate,
    significant,
)
from reports.view import StudyView

RULES: dict[Rule, str] = {
    "stable": "at most the accepted share of runs is prone to collapse, at any horizon, with 95 % credibility",
    "conservative": "below both the boundary and B / T",
    "budget-limited": "P(collapse by T) at most the accepted risk; may lie above the boundary, so T is the end",
}
OBJECTIVES: dict[Objective, str] = {"time": "progress per second", "progress": "progress per update"}


def next_command(view: StudyView) -> str | None:
    """What to type next, quoted for a POSIX shell."""
    if view.next_command is not None:
        return view.next_command
    return f"calibrate train --from {shlex.quote(view.folder)}" if view.recommendation else None


def what_to_set(view: StudyView) -> Card:
    rec = view.recommendation
    if rec is None:
        blocks: list[Block] = [Paragraph(_refusal(view), strong=True)]
    else:
        blocks = [Paragraph(_purpose(rec)), Settings(settings(rec))]
        blocks += [Paragraph(text) for text in _reservations(rec)]
    if view.unfinished:
        blocks.insert(0, Paragraph(view.unfinished, strong=True))
    return Card("set", "What to set", tuple(blocks))


NEXT_WITHOUT = (
    "Give the sweep what the sentence above asks for in study.toml (sweep.learning_rates, sweep.longest, sweep.rounds, "
    "or advice.horizon), or more --max-updates, then run the same command again: finished runs are kept."
)


def next_card(view: StudyView) -> Card:
    command = next_command(view)
    if command is None and view.unfinished is not None:
        return Card("next", "Next", (Paragraph("The same `calibrate run` goes on with the sweep."),))
    if command is None:
        return Card("next", "Next", (Paragraph(NEXT_WITHOUT),))
    return Card("next", "Next", (*_in_one_line(view), Code(command)))


def _in_one_line(view: StudyView) -> tuple[Paragraph, ...]:
    """The four numbers again: on a terminal the end of the report is what one sees."""
    rec = view.recommendation
    if rec is None:
        return ()
    settings = [f"S = {rec.sync_interval}", f"eta = {rate(rec.learning_rate)}"]
    settings += [f"G = {rec.group_size}"] if rec.group_size is not None else []
    settings += [f"epsilon = {significant(rec.epsilon)}"] if rec.epsilon is not None else []
    return (Paragraph(", ".join(settings), strong=True),)


def _refusal(view: StudyView) -> str:
    return f"Nothing is recommended. {view.refusal or 'The runs do not identify a safe setting.'}"


def _purpose(rec: Recommendation) -> str:
    return (
        f"For a run of T = {count(rec.horizon)} updates with estimator {name(rec.estimator)}, schedule "
        f"{name(rec.schedule)} (largest lag {plural(rec.max_lag, 'update')}), by rule '{rec.rule}' "
        f"at risk {fixed(rec.risk)}:"
    )


def _reservations(rec: Recommendation) -> list[str]:
    texts = []
    if any(finding.code == "collapses_at_budget" for finding in rec.findings):
        texts.append(
            "This rate lies above the stable limit: the run is expected to collapse near L = B if it is extended."
        )
    if rec.suggested is not None:
        texts.append(_suggestion(rec, rec.suggested))
    return texts


def _suggestion(rec: Recommendation, suggested: Suggested) -> str:
    pair = f"G = {suggested.group_size}, epsilon = {compact(suggested.epsilon)}"
    if (suggested.group_size, suggested.epsilon) == (rec.group_size, rec.epsilon):
        return (
            f"The recorded ratios suggest no other pair than the swept {pair}. {_sentence(suggested.reason)}"
        )
    return f"Suggested by the recorded ratios, not yet trained with: {pair}. {_sentence(suggested.reason)}"


def settings(rec: Recommendation) -> tuple[Setting, ...]:
    """The four numbers. `unknown` stands where the study could not tell (imported logs)."""
    size = UNSET if rec.group_size is None else count(rec.group_size)
    epsilon = UNSET if rec.epsilon is None else compact(rec.epsilon)
    rows = (
        ("S", "sync interval, updates", count(rec.sync_interval), "sync_interval", _why_interval(rec)),
        ("eta", "learning rate", rate(rec.learning_rate), "learning_rate", _why_rate(rec)),
        ("G", "completions per prompt", size, "group_size", _why_kept(rec.group_size)),
        ("epsilon", "ratio threshold", epsilon, "epsilon", _why_epsilon(rec)),
    )
    return tuple(Setting(s, n, v, rec.origin.get(key, "assumed"), why) for s, n, v, key, why in rows)


UNSET = "not known"


def _why_interval(rec: Recommendation) -> str:
    if rec.max_lag == 0:
        return "No larger interval is safe and useful: this is synchronous training."
    text = f"Most {OBJECTIVES[rec.objective]} among the safe asynchronous intervals"
    merits = {row.sync_interval: row.merit(rec.objective) for row in rec.frontier if row.useful}
    synchronous, chosen = merits.get(1), merits.get(rec.sync_interval)
    if rec.schedule != "lockstep" or not synchronous or not chosen or synchronous <= chosen:
        return f"{text}."
    return f"{text}; S = 1, the synchronous reference, would make {synchronous / chosen:.2g} times as much."


def _why_rate(rec: Recommendation) -> str:
    if rec.rule == "conservative":
        return f"Largest rate below eta_max(S) and B / T, both at risk {fixed(rec.risk)}, rounded down."
    if rec.rule == "budget-limited":
        return f"Largest rate with P(collapse by T) at most {fixed(rec.risk)}, rounded down."
    return f"Largest rate at this S with P(prone to collapse) at most {fixed(rec.risk)}, rounded down."


def _why_kept(value: float | None) -> str:
    if value is None:
        return "The logs do not hold it: keep the value that the runs were made with."
    return "Kept from the sweep: the fitted laws hold for this value."


def _why_epsilon(rec: Recommendation) -> str:
    if rec.epsilon is None or rec.estimator in CAPPED:
        return _why_kept(rec.epsilon)
    return f"Kept from the sweep; {name(rec.estimator)} does not use it."


def how_sure(view: StudyView) -> Card:
    rec = view.recommendation
    if rec is None:
        return Card("sure", "How sure", (Paragraph("There is no recommendation to be sure about."),))
    return Card("sure", "How sure", (Facts(_certainty(view, rec)), *_confirmation_table(rec.confirmation)))


def _certainty(view: StudyView, rec: Recommendation) -> tuple[Fact, ...]:
    level = fixed(rec.collapse_probability.level)
    total = rec.learning_rate * rec.horizon
    facts = [
        Fact(
            "P(collapse by T)",
            interval(rec.collapse_probability, percent),
            f"for T = {count(rec.horizon)} updates, with {level} interval",
            "derived",
        ),
        Fact("Extrapolation", f"{significant(rec.extrapolation)} x", _reach(rec, total), "derived"),
        Fact("Rule", rec.rule, RULES[rec.rule]),
    ]
    floor = rec.floor_learning_rate
    if floor is not None:
        facts.append(
            Fact(
                "Useful floor",
                rate(floor),
                "below this eta the run would learn nothing useful within T",
                "derived",
            )
        )
    if rec.crossover_interval is not None:
        note = (
            "where eta_max = B / T: below it a run at eta_max passes L = B before T, above it T comes first"
        )
        facts.append(Fact("Crossover S*", crossover_text(rec, rec.crossover_interval), note, "derived"))
    measured: Origin | None = "measured" if rec.confirmation else None
    facts.append(Fact("Confirmation", *confirmation_text(rec.confirmation), measured))
    return tuple(facts)


def crossover_text(rec: Recommendation, crossover: Estimate) -> str:
    """S* with its interval; beyond the swept intervals its place is extrapolation and only that is said."""
    largest = max((row.sync_interval for row in rec.frontier), default=rec.sync_interval)
    if crossover.low > largest:
        return f"beyond the swept intervals, > {largest}"
    if crossover.high > largest:
        return f"{count(crossover.estimate)} [{count(crossover.low)}, > {largest}]"
    return interval(crossover)


def _reach(rec: Recommendation, total: float) -> str:
    seen = rec.valid_for.longest_cumulative_lr if rec.valid_for else total / max(rec.extrapolation, 1e-300)
    where = "within what was observed" if rec.extrapolation <= 1 else "beyond what was observed"
    longest = f"the longest observed L = {significant(seen)} {LR_UPDATES}"
    return f"eta T = {significant(total)} over {longest}: {where}"


def confirmation_text(confirmation: Confirmation | None) -> tuple[str, str]:
    """Short result and the sentence that explains it."""
    if confirmation is None:
        return "not run", "no run was made with these four numbers together"
    good = sum(v == "stable" for v in confirmation.verdicts)
    after = confirmation.held_out_after
    held_out = f"; held-out reward {significant(confirmation.held_out_before, 3)} before"
    held_out += f", {listing([held_out_text(x) for x in after])} after" if after else ""
    return (
        f"{good} of {len(confirmation.verdicts)} stable",
        f"{plural(confirmation.updates, 'update')} at eta = {rate(confirmation.learning_rate)}{held_out}",
    )


def held_out_text(reward: float | None) -> str:
    """A run that diverged has no final score."""
    return "-" if reward is None else significant(reward, 3)


def _confirmation_table(confirmation: Confirmation | None) -> tuple[Table, ...]:
    if confirmation is None or len(confirmation.trials) < 2:
        return ()
    columns = (
        Column("trial"),
        Column("verdict", "verdict", origin="derived"),
        Column("held-out reward after", "number", origin="measured"),
    )
    after = [held_out_text(x) for x in confirmation.held_out_after]
    after += ["-"] * (len(confirmation.trials) - len(after))
    rows = tuple(
        (str(t), v, a) for t, v, a in zip(confirmation.trials, confirmation.verdicts, after, strict=False)
    )
    return (Table("Confirmation runs, made with the recommended numbers together", columns, rows),)


def group_epsilon(view: StudyView) -> Card:
    title = "Group size and ratio threshold"
    rec = view.recommendation
    if rec is None or rec.suggested is None or not rec.suggested.table:
        text = "No other G or epsilon was rated: the study holds no recorded ratios for it."
        if rec is not None and rec.epsilon is not None and rec.estimator not in CAPPED:
            text = f"No other G or epsilon was rated: {name(rec.estimator)} has no cap on trajectory ratios."
        return Card("group", title, (Paragraph(text),))
    basis = (
        "Resampled from recorded ratios and pass rates, without training each pair. Deeper colour is a larger number; "
        "the swept pair has a frame; rows with * reach beyond the recorded group size."
    )
    blocks = (Paragraph(_suggestion(rec, rec.suggested)), Paragraph(basis), *map_blocks(view))
    return Card("group", title, blocks)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
