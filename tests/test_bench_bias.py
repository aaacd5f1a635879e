"""Exact enumeration of what a cap costs: against brute force, and what it must show."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from trainer.algorithms.advantages import group_normalised

ROOT = Path(__file__).parent.parent
ROUNDING = 1e-12
NAMES = ("gmc", "tic", "tic_zero")


@pytest.fixture(scope="module")
def bias() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_bias", ROOT / "bench/bias.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cases(bias: ModuleType) -> list[dict[str, Any]]:
    """Rows of the three estimators side by side, enumerated here."""
    rows = [
        row
        for drift, seed in itertools.product((0.1, 0.3, 1.0), (0, 7))
        for row in bias.rows_of(2, 3, drift, seed, (2, 3, 5))
    ]
    return list(bias.by_estimator(rows))


def test_policies_are_distributions_with_their_scores(bias: ModuleType) -> None:
    found = bias.policies(3, 2, 0.5, 0)
    assert float(found.behaviour.sum()) == pytest.approx(1, abs=1e-14)
    learner = found.behaviour * found.ratios
    assert float(learner.sum()) == pytest.approx(1, abs=1e-14)
    # The expected score is zero under the learner, and not under another policy.
    assert float((learner @ found.scores).norm()) < 1e-14
    assert float((found.behaviour @ found.scores).norm()) > 1e-2


@pytest.mark.parametrize(("size", "groups"), [(1, 8), (2, 36), (5, 792)])
def test_all_groups_are_there_once(bias: ModuleType, size: int, groups: int) -> None:
    found = bias.policies(2, 3, 0.3, 1)
    assert len(bias.all_groups(8, size)[0]) == groups
    assert float(bias.chances(found, size).sum()) == pytest.approx(1, abs=1e-12)


def plain(ratios: list[float], epsilon: float, name: str) -> list[float]:
    cap, mean = 1 + epsilon, sum(ratios) / len(ratios)
    if name == "gmc":
        return [r * min(1.0, cap / mean) for r in ratios]
    return [min(r, cap) if name == "tic" else (r if r <= cap else 0.0) for r in ratios]


@pytest.mark.parametrize("name", NAMES)
def test_it_equals_a_sum_over_all_ordered_draws(bias: ModuleType, name: str) -> None:
    size, epsilon = 3, 0.1
    found = bias.policies(2, 2, 0.7, 3)
    mass, gradient = 0.0, torch.zeros(found.scores.shape[1], dtype=torch.float64)
    for draw in itertools.product(range(4), repeat=size):
        index = torch.tensor(draw)
        chance = float(found.behaviour[index].prod())
        ratios = found.ratios[index].tolist()
        weights = torch.tensor(plain(ratios, epsilon, name), dtype=torch.float64)
        lost = found.ratios[index] - weights
        advantages = group_normalised(found.rewards[index], size)
        mass += chance * float(lost.mean())
        gradient += chance * (lost * advantages) @ found.scores[index] / size
    bias_of = {row.estimator: row for row in bias.rows_of(2, 2, 0.7, 3, (size,)) if row.epsilon == epsilon}[
        name
    ]
    assert bias_of.lost_mass == pytest.approx(mass, rel=1e-10)
    assert bias_of.bias == pytest.approx(float(gradient.norm()), rel=1e-10)


def test_lost_mass_is_ordered_in_every_case(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        assert case["gmc"].lost_mass <= case["tic"].lost_mass + ROUNDING
        assert case["tic"].lost_mass <= case["tic_zero"].lost_mass + ROUNDING
    assert any(case["gmc"].lost_mass < 0.5 * case["tic"].lost_mass for case in cases)


def test_only_that_of_gmc_falls_with_the_group_size(cases: list[dict[str, Any]]) -> None:
    for name in NAMES:
        by_case: dict[tuple[Any, ...], list[float]] = {}
        for case in cases:
            row = case[name]
            by_case.setdefault((row.drift, row.seed, row.epsilon), []).append(row.lost_mass)
        assert any(masses[0] > 0.01 for masses in by_case.values())
        for masses in by_case.values():
            if name == "gmc":
                assert all(a > b or a < ROUNDING for a, b in itertools.pairwise(masses))
            else:
                assert masses == pytest.approx([masses[0]] * len(masses), abs=ROUNDING)


def test_nothing_exceeds_its_bound(cases: list[dict[str, Any]]) -> None:
    for row in (row for case in cases for row in case.values()):
        assert row.lost_mass <= row.mass_bound + ROUNDING
        assert row.bias <= row.bias_bound + ROUNDING
        assert row.centred_bias <= row.centred_bias_bound + ROUNDING


def test_the_table_is_what_the_script_makes_and_holds_the_same(bias: ModuleType) -> None:
    with (ROOT / "bench/results/bias.csv").open() as file:
        table = list(csv.DictReader(file))
    made = list(bias.rows_of(3, 2, 0.3, 1, (2, 4)))
    kept = [row for row in table if (row["length"], row["drift"], row["seed"]) == ("2", "0.3", "1")]
    for row, line in zip(made, kept, strict=False):
        assert line["estimator"] == row.estimator
        assert float(line["lost_mass"]) == pytest.approx(row.lost_mass, rel=1e-5, abs=1e-12)
        assert float(line["bias"]) == pytest.approx(row.bias, rel=1e-5, abs=1e-12)
    assert len(table) == 945
    masses = [float(row["lost_mass"]) for row in table]
    for gmc, tic, tic_zero in zip(masses[::3], masses[1::3], masses[2::3], strict=True):
        assert gmc <= tic + ROUNDING
        assert tic <= tic_zero + ROUNDING
