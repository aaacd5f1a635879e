"""Synthetic studies with the shapes that real ones have: two estimators, deaths, survivors, odd ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from studies import hostile_study, large_study, refused_study, study, unknown_rates

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


@pytest.fixture(scope="session")
def large() -> StudyView:
    return large_study(500)
