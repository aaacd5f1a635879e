"""bench/coverage.py computes only the headline of a fit; its numbers must be those of the product."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from calibrator.advice.recommend import recommend
from calibrator.laws.fit import fit_runs
from calibrator.laws.types import Estimate

SCRIPT = Path(__file__).parent.parent / "bench" / "coverage.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_coverage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["alpha 1", "ceiling, 16 runs, sigma_C 0.5"])
def test_intervals_are_those_of_the_fit(bench: ModuleType, name: str) -> None:
    scenario = bench.COVERAGE[name]
    row = bench.coverage_row(scenario, 1)
    study = bench.draw_study(scenario, 1)
    fit = fit_runs(study.runs)[0].summary
    assert fit.boundary is not None
    assert fit.budget is not None
    model = fit.boundary.models[study.truth.boundary]
    second: Estimate | None = model.alpha or model.eta_0
    assert model.C is not None
    assert second is not None
    for symbol, estimate in (
        ("C", model.C),
        ("alpha" if model.alpha else "eta_0", second),
        ("B", fit.budget.B),
    ):
        assert float(row[f"{symbol}_low"]) == pytest.approx(estimate.low, rel=1e-5)
        assert float(row[f"{symbol}_high"]) == pytest.approx(estimate.high, rel=1e-5)


def test_recommended_rates_are_those_of_the_advice(bench: ModuleType) -> None:
    scenario = bench.Scenario("ceiling", grid="16", sigma_C=0.3)
    study = bench.draw_study(scenario, 5)
    advice = recommend(fit_runs(study.runs)[0], bench.request(study))
    row = bench.safety_row(scenario, 5)
    assert row["S"] == advice.sync_interval
    safe = study.truth.eta_at_risk(advice.sync_interval, 0.05)
    assert float(row["ratio"]) == pytest.approx(advice.learning_rate / safe, rel=1e-3)


def test_a_study_is_a_function_of_its_number_and_is_made_once(bench: ModuleType, tmp_path: Path) -> None:
    scenario = bench.COVERAGE["alpha 0.5"]
    assert bench.draw_study(scenario, 3).runs == bench.draw_study(scenario, 3).runs
    assert bench.draw_study(scenario, 3).runs != bench.draw_study(scenario, 4).runs
    made = []

    def tasks(count: int) -> list[tuple[str, int, object]]:
        return [("s", number, lambda n=number: made.append(n) or {"value": n}) for number in range(count)]

    bench.make(tmp_path / "rows.csv", tasks(2))
    path = tmp_path / "rows.csv"
    path.write_bytes(path.read_bytes()[:-2])  # killed in the middle of the second line
    bench.make(path, tasks(3))
    assert made == [0, 1, 1, 2]
    assert [row["value"] for row in bench.read(tmp_path / "rows.csv")] == ["0", "1", "2"]
