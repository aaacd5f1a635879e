"""Synthetic studies with the shapes that real ones have: two estimators, deaths, survivors, odd ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from studies import hostile_study, large_study, refused_study, study, unknown_rates

from reports.html import render_html
from reports.view import StudyView


@pytest.fixture(scope="session")
def view() -> StudyView:
    return study()


@pytest.fixture(scope="session")
def refused() -> StudyView:
    return refused_study()


@pytest.fixture(scope="session")
def hostile() -> StudyView:
    return hostile_study()


@pytest.fixture(scope="session")
def unknown() -> StudyView:
    return unknown_rates()


class Pages:
    """HTML of the studies by fixture name, rendered once."""

    def __init__(self, studies: dict[str, StudyView]) -> None:
        self.studies = studies
        self.texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self.texts:
            self.texts[name] = render_html(self.studies[name])
        return self.texts[name]


@pytest.fixture(scope="session")
def pages(view: StudyView, refused: StudyView, hostile: StudyView, unknown: StudyView) -> Pages:
    return Pages({"view": view, "refused": refused, "hostile": hostile, "unknown": unknown})


@pytest.fixture(scope="session")
def large() -> StudyView:
    return large_study(500)
