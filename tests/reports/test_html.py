import re
import time
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest
from studies import SCRIPT

from reports.cards import document_cards
from reports.html import render_html
from reports.view import StudyView

VOID = {"meta", "link", "br", "hr", "img", "input"}
SVG_EMPTY = {"path", "use", "rect", "circle", "line"}
NAMESPACES = {"http://www.w3.org/2000/svg"}
LIMIT_BYTES, LIMIT_SECONDS = 3_000_000, 10.0


class Page(HTMLParser):
    """Checks nesting, gathers ids, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of <{tag}> stands twice"
        assert not [name for name in names if name.startswith("on")]
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src"}:
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("study", ["view", "refused", "hostile", "unknown"])
def test_well_formed_and_self_contained(study: str, pages: Mapping[str, str]) -> None:
    text = pages[study]
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert "script" not in page.tags
    assert set(re.findall(r"https?://[^\"'\s<)]+", text)) <= NAMESPACES
    assert all(link.startswith("#") or link == "data:," for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_cards_in_order(view: StudyView, pages: Mapping[str, str]) -> None:
    text = pages["view"]
    places = [text.index(f'<section class="card" id="{c.slug}"') for c in document_cards(view)]
    assert places == sorted(places)
    panels = 6 + 2  # three figures for two strata, and two of the staleness bias for the one that has it
    assert text.count("<svg") == panels + len(view.runs)
    assert text.count('role="img"') == panels + len(view.runs)


def test_hostile_names_are_text(pages: Mapping[str, str]) -> None:
    text = pages["hostile"]
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\\x1b[31mred" in text
    assert all(ord(c) >= 32 or c == "\n" for c in text)
    assert "\u202e" not in text
    assert "<img" not in text
    assert f"{SCRIPT}[red]x[/red]" in "".join(Page(text).words)


def test_same_bytes(view: StudyView, pages: Mapping[str, str]) -> None:
    assert render_html(view) == pages["view"]


def test_says_the_four_numbers(pages: Mapping[str, str]) -> None:
    words = " ".join("".join(Page(pages["view"]).words).split())
    for wanted in ("2.6e-3", "2.1 % [0.4 %, 4.8 %]", "0.402 before, 0.958 and 0.961 after"):
        assert wanted in words


def test_hundreds_of_runs_stay_small_and_quick(large: StudyView) -> None:
    start = time.perf_counter()
    text = render_html(large)
    assert len(text.encode()) < LIMIT_BYTES
    assert time.perf_counter() - start < LIMIT_SECONDS
