"""RUNS.csv: defaults, strata, and errors that name the row and the column."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.errors import StudyConfigError
from calibrator.laws.table import read_runs
from calibrator.laws.types import Run
from calibrator.verdicts.types import Verdict

HEADER = "run,estimator,sync_interval,learning_rate,updates,verdict,onset_low,onset_high"
GOOD = "a,gmc,8,0.001,100,collapsed,16,24"


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*lines: str) -> Path:
        path = tmp_path / "RUNS.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


def test_left_out_columns_have_defaults(write: Write) -> None:
    (run,) = read_runs(write(HEADER, GOOD))
    assert run.verdict is Verdict.COLLAPSED
    assert (run.max_lag, run.seed, run.strata) == (7, 0, {})
    assert run.cumulative_lr == pytest.approx(0.1)
    assert run.cumulative_lr_onset_low == pytest.approx(0.016)
    assert run.cumulative_lr_onset_high == pytest.approx(0.024)


def test_given_cumulative_columns_and_lag_win(write: Write) -> None:
    header = HEADER + ",max_lag,cumulative_lr,cumulative_lr_onset_low,cumulative_lr_onset_high"
    (run,) = read_runs(write(header, GOOD + ",15,0.09,0.012,0.02"))
    assert run.effective_interval == 16
    assert (run.cumulative_lr, run.cumulative_lr_onset_low, run.cumulative_lr_onset_high) == (
        0.09,
        0.012,
        0.02,
    )


def test_further_columns_separate_strata(write: Write) -> None:
    runs = read_runs(write(HEADER + ",G,model", GOOD + ",8,", GOOD + ",16,tiny"))
    assert [run.strata for run in runs] == [{"G": "8"}, {"G": "16", "model": "tiny"}]


def test_blank_lines_and_onsets_of_survivors_are_ignored(write: Write) -> None:
    (run,) = read_runs(write(HEADER, "", "a,gmc,8,0.001,100,stable,3,4", ""))
    assert run.onset_low is None


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,gmc,8,fast,100,stable,,", "line 2, column 'learning_rate': 'fast' is not a number"),
        ("a,gmc,8,-1,100,stable,,", "line 2, column 'learning_rate': '-1' must be finite and not negative"),
        ("a,gmc,8,nan,100,stable,,", "line 2, column 'learning_rate': 'nan' must be finite"),
        (
            "a,gmc,0,1e-3,100,stable,,",
            "line 2, column 'sync_interval': '0' must be a whole number of at least 1",
        ),
        ("a,gmc,8,1e-3,9.5,stable,,", "line 2, column 'updates': '9.5' must be a whole number"),
        ("a,gmc,8,1e-3,100,fine,,", "line 2, column 'verdict': 'fine' is none of stable, collapsed"),
        ("a,gmc,8,1e-3,100,collapsed,9,4", "line 2, column 'onset_low': 9 lies after onset_high = 4"),
        (",gmc,8,1e-3,100,stable,,", "line 2, column 'run': is empty"),
        ("a,gmc,8,1e-3,100,stable", "line 2: 6 cells where the header has 8"),
    ],
)
def test_a_wrong_cell_is_named(write: Write, row: str, says: str) -> None:
    with pytest.raises(StudyConfigError, match=r"RUNS\.csv") as caught:
        read_runs(write(HEADER, row))
    assert says in str(caught.value)


def test_a_wrong_file_is_named(write: Write, tmp_path: Path) -> None:
    with pytest.raises(StudyConfigError, match=r"column\(s\) verdict missing"):
        read_runs(write(HEADER.replace(",verdict", ""), "a"))
    with pytest.raises(StudyConfigError, match="holds no runs"):
        read_runs(write(HEADER))
    with pytest.raises(StudyConfigError, match="appears twice"):
        read_runs(write(HEADER, GOOD, GOOD))
    with pytest.raises(StudyConfigError, match="two columns"):
        read_runs(write(HEADER + ",run", GOOD + ",a"))
    with pytest.raises(StudyConfigError, match="cannot be read"):
        read_runs(tmp_path / "none.csv")


def outcome(path: Path) -> list[Run] | str:
    """The runs, or what the reader says against the file."""
    try:
        return read_runs(path)
    except StudyConfigError as error:
        return str(error)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: f"{HEADER}\n{text}".encode()))
)
def test_any_file_gives_runs_or_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("table") / "RUNS.csv"
    path.write_bytes(content)
    said = outcome(path)
    assert str(path) in said if isinstance(said, str) else said


CELLS = st.sampled_from(
    ["", "0", "1", "8", "1e-3", "1e9", "1e309", "-1", "nan", "inf", "stable", "collapsed", "x"]
)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.lists(CELLS, min_size=6, max_size=6))
def test_any_cells_give_a_finite_run_or_name_their_column(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    path = tmp_path_factory.mktemp("table") / "RUNS.csv"
    path.write_text("\n".join([HEADER, ",".join(["a", "gmc", *cells])]))
    said = outcome(path)
    if isinstance(said, str):
        assert "line 2, column" in said
    else:
        assert math.isfinite(said[0].cumulative_lr)
        assert said[0].sync_interval >= 1


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_separator_is_named(write: Write, mark: str) -> None:
    with pytest.raises(StudyConfigError, match="separate them by commas"):
        read_runs(write(HEADER.replace(",", mark), GOOD.replace(",", mark)))


def test_utf_16_and_empty_files_are_named(tmp_path: Path) -> None:
    wide, empty = tmp_path / "wide.csv", tmp_path / "empty.csv"
    wide.write_text(f"{HEADER}\n{GOOD}\n", encoding="utf-16")
    empty.write_text("\n")
    with pytest.raises(StudyConfigError, match="UTF-16, save it as UTF-8"):
        read_runs(wide)
    with pytest.raises(StudyConfigError, match="is empty"):
        read_runs(empty)


def test_learning_rates_too_small_to_be_any_are_refused(write: Write) -> None:
    with pytest.raises(StudyConfigError, match=r"line 2, column 'learning_rate'.*at least 1e-15"):
        read_runs(write(HEADER, GOOD.replace("0.001", "1e-300")))
    (run,) = read_runs(write(HEADER, "a,gmc,8,0,100,untrained,,"))
    assert run.learning_rate == 0
