"""`calibrate confirm`: prediction, runs and comparison; outcomes from a known truth, and once for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import Result

import calibrator.cli.confirm as command
from calibrator.advice.prediction import ConfirmationRecord
from calibrator.cli.question import current_question
from calibrator.study.journal import Journal
from calibrator.study.results import load_results
from calibrator.study.store import StudyFolder, open_study
from calibrator.sweep.rounds import Execute, Sweep

Calibrate = Callable[..., Result]
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


class Stand:
    """Stands in for the executor: outcomes by the simulator, or `dead` ones; dies after so many trials."""

    def __init__(self, simulate: Execute) -> None:
        self._simulate = simulate
        self.left: int | None = None
        self.made = 0
        self.dead = False

    def executing(self, *_: object) -> AbstractContextManager[Any]:
        @contextmanager
        def yielding() -> Iterator[Any]:
            yield self

        return yielding()

    def __call__(self, folders: Sequence[Path], *, stage: str, spent: int) -> None:
        for folder in folders:
            if (folder / "verdict.json").exists():
                continue
            if self.left is not None and self.made == self.left:
                raise KeyboardInterrupt
            self._simulate([folder], stage=stage, spent=spent)
            if self.dead:
                verdict = json.loads((folder / "verdict.json").read_text())
                verdict |= {"verdict": "collapsed", "onset_updates": [20, 24]}
                verdict |= {"cumulative_lr_at_onset": [0.01, 0.012]}
                (folder / "verdict.json").write_text(json.dumps(verdict))
            self.made += 1


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, simulated_trials: Execute) -> Stand:
    stand = Stand(simulated_trials)
    monkeypatch.setattr(command, "executing", stand.executing)
    return stand


def record(root: Path) -> ConfirmationRecord:
    return ConfirmationRecord.model_validate_json((root / "confirmation.json").read_bytes())


def test_counts_are_predicted_run_and_compared(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    before = {result.number: result.config.seed for result in load_results(StudyFolder(study))}
    answer = calibrate("confirm", study, "--json")
    found = record(study)
    assert json.loads(answer.stdout) == found.model_dump(mode="json")
    assert answer.exit_code == (0 if found.as_predicted else 3)
    safe, unsafe = found.settings
    advice = json.loads((study / "recommendation.json").read_text())
    assert (safe.sync_interval, safe.learning_rate) == (advice["sync_interval"], advice["learning_rate"])
    assert safe.collapse_probability.model_dump() == advice["collapse_probability"]
    assert safe.collapsed <= 1
    assert unsafe.collapsed >= 4
    assert unsafe.predicted.low >= 4
    trials = {result.number: result for result in load_results(StudyFolder(study))}
    seeds = [trials[number].config.seed for setting in found.settings for number in setting.trials]
    assert len(set(seeds)) == 10
    assert not set(seeds) & set(before.values())
    for setting in found.settings:
        assert len(setting.trials) == 5
        for number in setting.trials:
            config = trials[number].config
            assert (config.learning_rate, config.updates) == (setting.learning_rate, advice["horizon"])
    schema = json.loads((SCHEMAS / "confirmation.schema.json").read_text())
    Draft202012Validator(schema).validate(found.model_dump(mode="json"))


def test_again_it_runs_nothing_and_says_the_same(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    """Though its runs belong to the study now: a prediction never rests on the runs that it is about."""
    first = calibrate("confirm", study, "--json").stdout
    made = stand.made
    assert calibrate("confirm", study, "--json").stdout == first
    assert stand.made == made == 10
    assert not (study / "confirmation.previous.json").exists()


@pytest.mark.parametrize("moment", [0, 3, 7])
def test_an_interrupted_check_goes_on_and_ends_as_an_uninterrupted_one(
    calibrate: Calibrate, study: Path, tmp_path: Path, stand: Stand, moment: int
) -> None:
    other = Path(shutil.copytree(study, tmp_path / "other"))
    whole = calibrate("confirm", other, "--json").stdout
    stand.made, stand.left = 0, moment
    assert calibrate("confirm", study).exit_code == 130
    assert not (study / "confirmation.json").exists()
    stand.left = None
    assert calibrate("confirm", study, "--json").stdout == whole
    assert stand.made == 10


def test_more_seeds_are_added_to_those_that_ran(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    calibrate("confirm", study, "--seeds", 2)
    few = record(study)
    calibrate("confirm", study, "--seeds", 4)
    many = record(study)
    assert stand.made == 8
    for before, after in zip(few.settings, many.settings, strict=True):
        assert after.trials[:2] == before.trials
        assert after.predicted.runs == 4
    calibrate("confirm", study, "--seeds", 1)  # nobody may leave out runs that were made
    assert record(study) == many


def test_runs_that_were_only_planned_bind_nobody(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    refused = calibrate("confirm", study, "--seeds", 30, "--max-updates", 1)
    assert refused.exit_code == 4
    assert stand.made == 0
    enough = refused.stderr.split("--max-updates to ")[1].split(",")[0]
    assert calibrate("confirm", study, "--seeds", 1).exit_code in (0, 3)
    assert stand.made == 2
    assert calibrate("confirm", study, "--seeds", 30, "--max-updates", enough).exit_code in (0, 3)
    assert stand.made == 60


def test_a_lost_journal_is_not_begun_anew(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    (study / "journal.log").unlink()
    answer = calibrate("confirm", study)
    assert answer.exit_code == 2
    assert "`calibrate run`" in answer.stderr
    assert stand.made == 0


def test_rates_that_differ_late_are_other_runs(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    for rate in ("0.00812345671", "0.00812345699"):
        calibrate("confirm", study, "--seeds", 1, "--unsafe-learning-rate", rate)
        assert record(study).settings[1].learning_rate == float(rate)
    assert stand.made == 3


def test_the_question_is_kept_in_what_to_type_next(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    calibrate("recommend", study, "--horizon", 800, "--risk", 0.1)
    said = " ".join(calibrate("confirm", study, "--seeds", 1).stdout.split())
    assert "--horizon 800 --risk 0.1" in said


def test_the_runs_enter_the_next_fit_with_a_note(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    before = json.loads(calibrate("fit", study, "--json").stdout)["strata"][0]["runs"]
    advice = json.loads(calibrate("recommend", study, "--dry-run", "--json").stdout)
    assert "checked_runs" not in {finding["code"] for finding in advice["findings"]}
    calibrate("confirm", study)
    answer = calibrate("fit", study, "--json")
    assert json.loads(answer.stdout)["strata"][0]["runs"] == before + 10
    assert "10 of its" in answer.stderr
    advice = json.loads(calibrate("recommend", study, "--dry-run", "--json").stdout)
    said = {finding["code"]: finding["sentence"] for finding in advice["findings"]}
    assert said["checked_runs"].startswith("10 of the ")
    folder, config = open_study(study)
    sweep = Sweep(config, folder, Journal(folder.journal), stand)
    fitted = sweep.run().conclusion.stratum("gmc")
    assert fitted is not None
    assert sum(run.learning_rate == record(study).settings[1].learning_rate for run in fitted.runs) >= 5


def test_the_report_tells_runs_behind_the_answer_from_runs_that_check_it(
    calibrate: Calibrate, study: Path, stand: Stand
) -> None:
    """Before and after the answer that takes them in: the boundary keeps its band, and nothing is out of date."""
    calibrate("confirm", study)
    for taken_in in (False, True):
        if taken_in:
            assert calibrate("recommend", study).exit_code == 0
        assert calibrate("report", study, "--format", "html").exit_code == 0
        page = (study / "report.html").read_text()
        assert "The recommendation rests on" not in page
        assert "boundary, median" in page
        assert ("Predicted and observed" in page) or taken_in


def test_what_is_not_as_predicted_is_said_and_exits_3(
    calibrate: Calibrate, study: Path, stand: Stand
) -> None:
    stand.dead = True
    answer = calibrate("confirm", study)
    assert answer.exit_code == 3
    assert "Not as predicted." in answer.stdout
    assert "FAIL" in answer.stdout
    safe, unsafe = record(study).settings
    assert (safe.collapsed, safe.inside) == (5, False)
    assert (unsafe.collapsed, unsafe.inside) == (5, True)
    assert "calibrate recommend" in answer.stdout


def test_the_unsafe_rate_may_be_given(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    calibrate("confirm", study, "--seeds", 1)
    default, eta = record(study), record(study).settings[0].learning_rate
    calibrate("confirm", study, "--seeds", 1, "--unsafe-factor", 5)
    assert record(study).settings[1].learning_rate == float(f"{5 * eta:.2g}")
    assert (
        ConfirmationRecord.model_validate_json((study / "confirmation.previous.json").read_text()) == default
    )
    assert record(study).settings[0] == default.settings[0]
    calibrate("confirm", study, "--seeds", 1, "--unsafe-learning-rate", 0.03)
    assert record(study).settings[1].learning_rate == 0.03
    assert stand.made == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--unsafe-factor 0.5", (2, "must lie above")),
        ("--unsafe-learning-rate nan", (2, "must lie above")),
        ("--unsafe-factor 2 --unsafe-learning-rate 0.1", (2, "one of")),
        ("--max-updates 100", (4, "--max-updates")),
    ],
)
def test_what_cannot_be_is_one_clear_line(
    calibrate: Calibrate, study: Path, stand: Stand, options: str, said: tuple[int, str]
) -> None:
    answer = calibrate("confirm", study, *options.split())
    assert answer.exit_code == said[0]
    assert said[1] in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert not (study / "confirmation.json").exists()
    assert stand.made == 0


def test_recommendations_that_no_trial_can_check_are_refused(
    calibrate: Calibrate, study: Path, stand: Stand
) -> None:
    calibrate("recommend", study, "--schedule", "overlap")
    answer = calibrate("confirm", study)
    assert answer.exit_code == 2
    assert "--schedule lockstep" in answer.stderr
    (study / "recommendation.json").unlink()
    assert "recommendation.json" in calibrate("confirm", study).stderr
    assert stand.made == 0


@pytest.mark.parametrize(
    "content",
    ["{", '{"settings": [1, 2], "schema_version": 1}', '{"schema_version": 2}', "unknown key", "a folder"],
)
def test_a_record_that_is_none_is_refused_before_any_run(
    calibrate: Calibrate, study: Path, stand: Stand, content: str
) -> None:
    calibrate("confirm", study, "--seeds", 1)
    path, made = study / "confirmation.json", stand.made
    before = path.read_text()
    if content == "unknown key":
        content = json.dumps({**json.loads(before), "colour": "red"})
    path.unlink()
    path.mkdir() if content == "a folder" else path.write_text(content)
    answer = calibrate("confirm", study, "--seeds", 2, "--unsafe-factor", 5)
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1), answer.stderr
    assert "confirmation.json" in answer.stderr
    assert "move it away; `calibrate confirm STUDY` makes it anew" in answer.stderr
    assert stand.made == made
    assert path.is_dir() or path.read_text() == content
    path.rename(study / "away")  # the remedy
    calibrate("confirm", study, "--seeds", 1)
    assert path.read_text() == before
    assert stand.made == made
    assert not (study / "confirmation.previous.json").exists()


def test_without_trials_the_next_step_is_named(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    shutil.rmtree(study / "trials")
    answer = calibrate("confirm", study)
    assert answer.exit_code == 3
    assert "next: the same `calibrate run` again" in answer.stderr


def test_a_study_of_other_code_is_refused(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    resolved = json.loads((study / "resolved.json").read_text())
    resolved["digests"]["code"] = "0" * 16
    (study / "resolved.json").write_text(json.dumps(resolved))
    answer = calibrate("confirm", study)
    assert answer.exit_code == 2
    assert "the code itself" in answer.stderr


def test_another_horizon_is_another_check(calibrate: Calibrate, study: Path, stand: Stand) -> None:
    calibrate("confirm", study, "--seeds", 1)
    calibrate("recommend", study, "--horizon", 800)
    folder, made = open_study(study)
    assert current_question(folder, made).advice.horizon == 800
    calibrate("confirm", study, "--seeds", 1)
    assert record(study).settings[0].horizon == 800
    assert stand.made == 4
    # the first check is among the runs that the second one's prediction rests on
    previous = ConfirmationRecord.model_validate_json((study / "confirmation.previous.json").read_text())
    assert record(study).fitted_runs > previous.fitted_runs


@pytest.mark.slow
def test_for_real_killed_and_continued(small_simulated_study: Path, tmp_path: Path) -> None:
    """The runs of the check train a policy; killed with -9 and continued, it ends as if it never was."""
    whole = Path(shutil.copytree(small_simulated_study, tmp_path / "whole"))
    before = len(list((whole / "trials").iterdir()))
    process = start("confirm", small_simulated_study, "--seeds", 1, "--workers", 1)
    while len(list(small_simulated_study.glob("trials/*/metrics.jsonl"))) <= before:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    answers = []
    for folder in (small_simulated_study, whole):
        process = start("confirm", folder, "--seeds", 1, "--workers", 1, "--json")
        out, err = process.communicate(timeout=600)
        assert process.returncode in (0, 3), err
        answers.append(ConfirmationRecord.model_validate_json(out))
    assert answers[0] == answers[1]
    numbers = [number for setting in answers[0].settings for number in setting.trials]
    validator = Draft202012Validator(json.loads((SCHEMAS / "metrics-row.schema.json").read_text()))
    for number in numbers:
        logs = [root / "trials" / str(number) / "metrics.jsonl" for root in (small_simulated_study, whole)]
        assert logs[0].read_bytes() == logs[1].read_bytes()
        rows = [json.loads(line) for line in logs[0].read_text().splitlines()]
        assert [error.message for row in rows for error in validator.iter_errors(row)] == []


def start(*arguments: object) -> subprocess.Popen[str]:
    """In a process group of its own, so that a signal to the group reaches all of it and nothing else."""
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("calibrate")), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
