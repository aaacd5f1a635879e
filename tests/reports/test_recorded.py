"""What lies beside a trial's curve, and the checks on it."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from calibrator.errors import CorruptStudyError
from calibrator.runlogs.own import curve_from_rows
from calibrator.verdicts.types import Verdict
from reports.cards.blocks import Check
from reports.cards.recorded import recorded_checks, untested_checks
from reports.recorded import Recorded, bias_of, recorded_in
from reports.view import RunView, StudyView


def row(update: int, **fields: object) -> dict[str, object]:
    lag = update % 4
    return {
        "update": update,
        "version": update - lag,
        "learning_rate": 1e-3,
        "lag_mean": float(lag),
        "lag_max": lag,
        "reward_mean": 0.5,
        "reward_se": 0.1,
        **fields,
    }


def test_bias_is_taken_from_the_rows_that_have_it() -> None:
    probe = {"bias_sq": -2.5e-07, "full_grad_sq": 0.04}
    rows = [row(0), row(1, **probe), row(2), row(3, bias_sq=None, full_grad_sq=1)]
    bias = bias_of(curve_from_rows(rows))
    assert bias is not None
    assert bias.update.tolist() == [1, 3]
    assert bias.lag.tolist() == [1, 3]
    assert bias.bias_sq[0] == -2.5e-07
    assert math.isnan(bias.bias_sq[1])
    assert bias.full_grad_sq.tolist() == [0.04, 1]


def test_a_log_without_the_probe_has_no_bias() -> None:
    assert bias_of(curve_from_rows([row(0)])) is None
    assert bias_of(curve_from_rows([])) is None


def test_seconds_by_phase(tmp_path: Path) -> None:
    timings = tmp_path / "timings.jsonl"
    timings.write_text('{"update":0,"learn":1.0,"wait":9,"paced":9}\n{"update":1,"learn":0.5,"score":0.25}\n')
    assert recorded_in(tmp_path, None).seconds == {"learn": 1.5, "score": 0.25}
    timings.write_text(timings.read_text() + '{"update":2,"lea')  # killed while it wrote
    assert recorded_in(tmp_path, None).seconds == {"learn": 1.5, "score": 0.25}
    timings.write_text('{"update":0,"lea\n{"update":1,"learn":0.5}\n')
    with pytest.raises(CorruptStudyError, match=r"timings\.jsonl"):
        recorded_in(tmp_path, None)


def changed(view: StudyView, **summary: object) -> StudyView:
    """The study with another summary of its first stale run."""
    first = next(i for i, r in enumerate(view.runs) if r.run.max_lag > 0)
    run = view.runs[first]
    assert run.recorded is not None
    assert run.recorded.summary is not None
    told = Recorded(run.recorded.summary.model_copy(update=summary), run.recorded.seconds)
    runs = [*view.runs]
    runs[first] = dataclasses.replace(run, recorded=told)
    return dataclasses.replace(view, runs=tuple(runs))


def check(view: StudyView, code: str) -> Check:
    (found,) = [c for c in recorded_checks(view) if c.code == code]
    return found


def test_a_lag_beyond_its_bound_fails(view: StudyView) -> None:
    assert check(view, "lag").status == "PASS"
    beyond = check(changed(view, lag_bound=2, lag_reached=3), "lag")
    assert beyond.status == "FAIL"
    assert "1 run" in beyond.sentence
    never = check(changed(view, lag_bound=9, lag_reached=3), "lag")
    assert never.status == "PASS"
    assert "never acted" in never.sentence


def test_discarded_groups_are_counted(view: StudyView) -> None:
    assert check(view, "discarded").status == "PASS"
    many = check(
        changed(view, discarded_groups=10**6, discarded_length=8.0, discarded_pass_rate=0.25), "discarded"
    )
    assert many.status == "WARN"
    assert "25 %" in many.sentence
    assert check(changed(view, discarded_groups=1), "discarded").status == "PASS"


def with_witnesses(run: RunView, at_lag_zero: float, stale: float) -> RunView:
    assert run.curve is not None
    lag = np.arange(run.curve.updates) % run.run.sync_interval
    columns = {"lag_max": lag, "log_ratio_abs_mean": np.where(lag == 0, at_lag_zero, stale)}
    return dataclasses.replace(run, curve=dataclasses.replace(run.curve, witnesses=columns))


@pytest.mark.parametrize(("floor", "status"), [(1e-6, "PASS"), (0.05, "WARN")])
def test_the_noise_floor_is_held_against_what_staleness_does(
    view: StudyView, floor: float, status: str
) -> None:
    runs = tuple(with_witnesses(r, floor, 0.1) for r in view.runs)
    found = check(dataclasses.replace(view, runs=runs), "noise_floor")
    assert found.status == status
    assert ("behaviour_logprobs" in found.sentence) == (status == "WARN")


def test_without_stale_runs_the_floor_is_only_told(view: StudyView) -> None:
    runs = tuple(with_witnesses(r, 1e-6, 0.1) for r in view.runs if r.run.sync_interval == 1)
    assert check(dataclasses.replace(view, runs=runs), "noise_floor").status == "NOTE"


def warming(run: RunView, updates: int) -> RunView:
    assert run.curve is not None
    rise = np.minimum((np.arange(run.curve.updates) + 1) / updates, 1) * run.run.learning_rate
    return dataclasses.replace(run, curve=dataclasses.replace(run.curve, learning_rate=rise))


def test_deaths_while_the_rate_rose_are_warned_of(view: StudyView) -> None:
    assert not [c for c in recorded_checks(view) if c.code == "warmup"]  # no warm-up, nothing to check
    short = dataclasses.replace(view, runs=tuple(warming(r, 4) for r in view.runs))
    assert check(short, "warmup").status == "PASS"
    long = dataclasses.replace(view, runs=tuple(warming(r, 10**6) for r in view.runs))
    found = check(long, "warmup")
    assert found.status == "WARN"
    assert "died" in found.sentence
    assert "ended" in found.sentence


def test_intervals_with_one_side_only_are_named(view: StudyView) -> None:
    assert [c.status for c in untested_checks(view)] == ["PASS"]
    alive = [r for r in view.runs if not (r.run.sync_interval == 4 and r.verdict.verdict.is_event)]
    (above,) = untested_checks(dataclasses.replace(view, runs=tuple(alive)))
    assert above.status == "WARN"
    assert "no run died at S = 4 (stable up to 3.2e-3)" in above.sentence
    dead = [r for r in view.runs if r.verdict.verdict is not Verdict.STABLE or r.run.sync_interval != 16]
    (below,) = untested_checks(dataclasses.replace(view, runs=tuple(dead)))
    assert "no run survived at S = 16 (dead from 3.2e-3)" in below.sentence


def test_imported_runs_have_nothing_to_check(view: StudyView) -> None:
    runs = tuple(dataclasses.replace(r, recorded=None, curve=None) for r in view.runs)
    assert recorded_checks(dataclasses.replace(view, runs=runs)) == []
