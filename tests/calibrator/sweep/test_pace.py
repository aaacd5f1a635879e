"""Runs that time other batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrator.handoff.conclude import study_cost
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.results import TrialResult
from calibrator.study.store import StudyFolder
from calibrator.sweep.pace import pace_folders, pace_runs
from calibrator.sweep.trial import execute
from calibrator.verdicts.types import RunVerdict
from trainer.config import ProbeConfig, RunConfig, TrainerConfig
from trainer.models import EMBEDDED_FOLDER


@pytest.mark.parametrize(("P", "G", "batches"), [(8, 16, [32, 512]), (2, 8, [4, 64]), (1, 4, [2, 16])])
def test_a_quarter_and_four_times_the_batch(P: int, G: int, batches: list[int]) -> None:
    runs = pace_runs(RunConfig(trainer=TrainerConfig(prompts_per_update=P, group_size=G)))
    assert [run.trainer.prompts_per_update * run.trainer.group_size for run in runs] == batches
    assert {run.updates for run in runs} == {12}
    assert all(RunConfig.model_validate(run.model_dump()) == run for run in runs)


def test_cost_json_tells_other_batches_after_the_pace_runs(tmp_path: Path) -> None:
    """A real trial and real pace runs of the embedded policy, as of a model that is not the default."""
    trainer = {"group_size": 4, "prompts_per_update": 2, "warmup": 0}
    content = {
        "task": {"name": "running-sum", "options": {"digits": 6}},
        "trainer": trainer,
        "sweep": {"sync_intervals": [1, 2, 4], "learning_rates": [1e-4, 1e-3], "longest": 8},
        "advice": {"horizon": 8},
        "model": {"path": str(EMBEDDED_FOLDER)},
    }
    config = parse_config(StudyConfig, content, source="test")
    study = StudyFolder(tmp_path)
    for folder in pace_folders(config, study):
        execute(RunConfig.model_validate_json((folder / "config.json").read_text()), folder)
    assert pace_folders(config, study) == []
    results = []
    for number, S in enumerate((2, 4)):
        run = config.run_config(
            estimator="gmc", sync_interval=S, learning_rate=1e-4, updates=8, seed=0
        ).model_copy(update={"probe": ProbeConfig(every=100, prompts=8)})
        folder = study.trial(number)
        folder.mkdir(parents=True)
        summary, verdict = execute(run, folder)
        assert isinstance(verdict, RunVerdict)
        results.append(TrialResult(number, folder, run, verdict, summary))
    cost = study_cost(config, study, results)
    assert cost is not None
    assert cost.terms is not None
    assert cost.terms.batches == (2, 8, 32)
    assert cost.seconds_at(4, 8, 4) > 0
