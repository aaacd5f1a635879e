"""Cards of where the results come from, and of what lies in the folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from calibrator.advice.types import Origin
from calibrator.nested import flat
from reports.cards.blocks import Block, Card, Fact, Facts, Paragraph
from reports.numbers import Number, compact, count, name, seconds
from reports.view import StudyView

EXPECTED = {
    "versions": "versions of the libraries",
    "hardware": "the hardware",
    "commit": "the git commit (an installed package has none)",
    "digests": "digests of model, task, setting and code",
    "seeds": "the seeds",
}
"""What a manifest should hold; what it lacks is said."""
COUNTED = frozenset({"trials", "updates", "trial_seconds"})


def manifest_card(view: StudyView) -> Card:
    if not view.manifest:
        return Card("manifest", "Manifest", (Paragraph("The study holds no manifest."),))
    facts = tuple(_fact(key, value) for key, value in flatten(view.manifest))
    blocks: list[Block] = [Facts(facts)]
    missing = [what for key, what in EXPECTED.items() if not view.manifest.get(key)]
    if missing:
        blocks.append(Paragraph(f"Not recorded: {'; '.join(missing)}."))
    if view.setting:
        blocks.append(Paragraph("What the trials depend on, as they were run:", strong=True))
        blocks.append(Facts(tuple(_fact(key, value) for key, value in flatten(view.setting))))
    return Card("manifest", "Manifest", tuple(blocks))


def _fact(key: str, value: str) -> Fact:
    if key in COUNTED or key.startswith("hardware."):
        return Fact(name(key), value, "", "measured")
    return Fact(name(key), value, "", _set(key, value))


def _set(key: str, value: str) -> Origin | None:
    """Numbers of a setting were given; names and digests are no numbers."""
    return "assumed" if isinstance(value, Number) or key == "seeds" else None


def flatten(record: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Nested mappings as dotted keys; lists on one line."""
    for path, value in flat(record).items():
        if path == "trial_seconds" and isinstance(value, (int, float)):
            yield path, seconds(float(value))
        elif path in COUNTED and isinstance(value, int):
            yield path, count(value)
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
        return count(value) if abs(value) >= 10_000 else Number(str(value), value)
    if isinstance(value, (list, tuple)):
        return _listed(value)
    return name(str(value))


def _listed(values: Sequence[object]) -> str:
    """Runs of whole numbers as ranges: `0-17, 101`."""
    if values and all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        whole = sorted({int(v) for v in values if isinstance(v, int)})
        runs = [[v for _, v in group] for _, group in groupby(enumerate(whole), lambda p: p[1] - p[0])]
        return ", ".join(_range(run) for run in runs)
    return ", ".join(_plain(v) for v in values) or "-"


def _range(run: list[int]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(str(v) for v in run)


def files_card(view: StudyView) -> Card:
    facts = [Fact("folder", name(view.folder))]
    if view.files:
        facts.append(Fact("files", ", ".join(name(f) for f in view.files)))
    return Card("files", "Files", (Facts(tuple(facts)),))
