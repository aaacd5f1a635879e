"""The report as one HTML file that needs nothing else: inline style, inline figures, no script."""

from __future__ import annotations

import functools
import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports.cards import Card, document_cards
from reports.cards.blocks import Figure
from reports.numbers import name, visible
from reports.palette import pairs
from reports.spark import Scale, spark
from reports.view import StudyView

SYMBOLS = {
    "eta": ("η", ""),
    "epsilon": ("ε", ""),
    "alpha": ("α", ""),
    "beta": ("β", ""),
    "gamma": ("γ", ""),
    "eta_0": ("η", "0"),
    "sigma_C": ("σ", "C"),
    "sigma_B": ("σ", "B"),
}
"""Symbols as they are set in a page; elsewhere they are written as in the code."""
LEGEND = (
    "Every number is measured (in a run of this study), derived (computed from what was measured) or assumed (set by "
    "the user, or taken from elsewhere)."
)
_TITLE_SYMBOL = re.compile(r"\b(eta_max|eta_0|eta|epsilon)\b")
_PROSE_SYMBOL = re.compile(r"(?<![\w.\-&#;`'])(?<!\D/)(eta_max|eta_0|eta|epsilon)(?![\w\-`'])")
_UNBROKEN = re.compile(r"[\d.]+e-\d+|[\d.,]+ %")


def render_html(view: StudyView) -> str:
    """One self-contained HTML page, under 3 MB for hundreds of runs."""
    cards = document_cards(view)
    template = _environment(cards).get_template("report.html.j2")
    return template.render(
        title=name(view.title),
        folder=name(view.folder),
        cards=cards,
        figures=_figures(view, cards),
        legend=LEGEND,
        light=Markup("; ").join(Markup(f"{v}: {light}") for v, light, _ in pairs()),  # noqa: S704
        dark=Markup("; ").join(Markup(f"{v}: {dark}") for v, _, dark in pairs()),  # noqa: S704
    )


def _environment(cards: tuple[Card, ...]) -> Environment:
    scale = Scale.of(cards)
    environment = Environment(
        loader=PackageLoader("reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["symbol"] = _symbol
    environment.filters["prose"] = _prose
    environment.filters["title_of"] = _title_of
    environment.filters["spark"] = functools.partial(spark, scale=scale)
    return environment


def _finalize(value: Any) -> Any:
    """Control characters become visible in whatever reaches the page as text."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(text: str) -> Markup:
    """Numbers and their units stay on one line, and symbols that stand alone are set as such."""
    safe = _UNBROKEN.sub(r'<span class="n">\g<0></span>', str(escape(visible(text))))
    return Markup(_PROSE_SYMBOL.sub(lambda m: str(_mathematical(m[0])), safe))  # noqa: S704


def _title_of(text: str) -> Markup:
    """A column's title with its symbols set as such: `eta_max [90 %]`."""
    parts = _TITLE_SYMBOL.split(visible(text))
    return Markup("").join(_mathematical(part) for part in parts)


def _mathematical(part: str) -> Markup:
    letter, _, below = part.partition("_")
    if not _TITLE_SYMBOL.fullmatch(part):
        return escape(part)
    sub = Markup("<sub>{}</sub>").format(below) if below else Markup("")
    return Markup("<i>{}</i>{}").format(SYMBOLS[letter][0], sub)


def _symbol(text: str) -> Markup:
    if text not in SYMBOLS and len(text) > 1:
        return escape(visible(text))
    letter, sub = SYMBOLS.get(text, (text, ""))
    below = Markup("<sub>{}</sub>").format(sub) if sub else Markup("")
    return Markup("<i>{}</i>{}").format(visible(letter), below)


def _figures(view: StudyView, cards: tuple[Card, ...]) -> dict[str, list[Markup]]:
    wanted = [b.name for card in cards for b in card.blocks if isinstance(b, Figure)]
    if not wanted:
        return {}
    from reports.figures import panel_svgs  # matplotlib is loaded only when there is something to draw

    return {figure: [Markup(svg) for svg in panel_svgs(view, figure)] for figure in wanted}  # noqa: S704
