"""The sweep's logic with outcomes drawn from a known truth: real journal, real fits, no training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from calibrator.errors import CorruptStudyError
from calibrator.laws.observations import is_event
from calibrator.study.config import StudyConfig, parse_config
from calibrator.study.journal import Journal
from calibrator.study.results import load_results
from calibrator.study.store import StudyFolder, prepare, write_json
from calibrator.sweep.rounds import Sweep, SweepResult
from calibrator.verdicts.types import RunVerdict, Verdict
from trainer.config import RunConfig, cumulative_learning_rate, learning_rate_at
from trainer.metrics import encode_row
from trainer.summary import RunSummary

BUDGET = 0.03
Truth = Callable[[RunConfig], float]


def ceiling(config: RunConfig) -> float:
    """eta_max of 2e-3 on-policy, C = 0.04."""
    return 1 / (1 / 2e-3 + (config.sync_interval - 1) / 0.04)


def outcome(config: RunConfig, eta_max: float) -> RunVerdict:
    """A draw from the mixture cure model, a function of the config alone."""
    rng = np.random.default_rng([config.seed, config.sync_interval, round(config.learning_rate * 1e9)])
    warmup = config.trainer.warmup
    total = cumulative_learning_rate(config.updates, peak=config.learning_rate, warmup=warmup)
    prone = math.log(config.learning_rate / eta_max) + 0.2 * rng.standard_normal() > 0
    death = BUDGET * math.exp(0.3 * rng.standard_normal())
    if not prone or death >= total:
        return RunVerdict(verdict=Verdict.STABLE, updates=config.updates, cumulative_lr_total=total)
    onset = next(
        u
        for u in range(config.updates)
        if cumulative_learning_rate(u + 1, peak=config.learning_rate, warmup=warmup) >= death
    )
    ended = min(onset + 1 + 48, config.updates)
    return RunVerdict(
        verdict=Verdict.COLLAPSED,
        updates=ended,
        cumulative_lr_total=cumulative_learning_rate(ended, peak=config.learning_rate, warmup=warmup),
        onset_updates=(onset, onset + 1),
        cumulative_lr_at_onset=(
            cumulative_learning_rate(onset, peak=config.learning_rate, warmup=warmup),
            cumulative_learning_rate(onset + 1, peak=config.learning_rate, warmup=warmup),
        ),
    )


def log(config: RunConfig, updates: int) -> Iterator[str]:
    """Rows with the fields that the sweep reads."""
    for update in range(updates):
        rate = learning_rate_at(update, peak=config.learning_rate, warmup=config.trainer.warmup)
        lag = update % config.sync_interval
        row = {"update": update, "version": update - lag, "learning_rate": rate, "lag_max": lag}
        yield encode_row({**row, "reward_mean": 0.5, "reward_se": 0.1}) + "\n"


class Executor:
    """Writes outcomes instead of training; can be told to die after so many trials."""

    def __init__(self, truth: Truth, *, die_after: int | None = None) -> None:
        self.truth, self.left, self.made = truth, die_after, 0

    def __call__(self, folders: Sequence[Path], *, stage: str, spent: int) -> None:
        for folder in folders:
            if (folder / "verdict.json").exists():
                continue
            if self.left == 0:
                raise KeyboardInterrupt
            self.left = None if self.left is None else self.left - 1
            config = RunConfig.model_validate_json((folder / "config.json").read_text())
            verdict = outcome(config, self.truth(config))
            (folder / "metrics.jsonl").write_text("".join(log(config, verdict.updates)))
            lag = config.sync_interval - 1
            summary = RunSummary(
                updates=verdict.updates,
                ended="finished",
                held_out_before=0.4,
                held_out_after=0.9,
                lag_bound=lag,
                lag_reached=lag,
                paced=0,
                discarded_groups=0,
                discarded_length=None,
                discarded_pass_rate=None,
            )
            write_json(folder / "summary.json", summary.model_dump(mode="json"))
            write_json(folder / "verdict.json", verdict.model_dump(mode="json"))
            self.made += 1


def study(folder: Path, **sweep: object) -> StudyConfig:
    settings = {"learning_rates": [2e-4, 8e-3], "sync_intervals": [4, 16, 64], "rounds": 3, **sweep}
    return parse_config(StudyConfig, {"output": {"folder": str(folder)}, "sweep": settings}, source="test")


def sweep(config: StudyConfig, execute: Executor) -> SweepResult:
    folder = prepare(config, "")
    return Sweep(config, folder, Journal(folder.journal), execute).run()


def test_a_sweep_recommends_below_the_truth_and_confirms(tmp_path: Path) -> None:
    result = sweep(study(tmp_path / "s"), Executor(ceiling))
    advice = result.conclusion.recommendation
    assert advice is not None
    assert advice.learning_rate < ceiling(RunConfig(sync_interval=advice.sync_interval))
    assert advice.confirmation is not None
    assert advice.confirmation.learning_rate == advice.learning_rate
    assert not result.budget_bound


@pytest.mark.parametrize("die_after", [0, 1, 4, 7, 9])
def test_an_interrupted_sweep_ends_as_an_uninterrupted_one(tmp_path: Path, die_after: int) -> None:
    whole = sweep(study(tmp_path / "whole"), Executor(ceiling))
    with pytest.raises(KeyboardInterrupt):
        sweep(study(tmp_path / "cut"), Executor(ceiling, die_after=die_after))
    rest = Executor(ceiling)
    cut = sweep(study(tmp_path / "cut"), rest)
    assert cut.conclusion.fit == whole.conclusion.fit
    assert cut.conclusion.recommendation == whole.conclusion.recommendation
    assert rest.made + die_after == len(load_results(StudyFolder(tmp_path / "whole")))


def test_max_updates_is_never_exceeded_and_more_budget_continues(tmp_path: Path) -> None:
    bound = sweep(study(tmp_path / "s", max_updates=900), Executor(ceiling))
    assert bound.budget_bound
    assert 0 < bound.spent <= 900
    free = sweep(study(tmp_path / "s", max_updates=None), Executor(ceiling))
    assert not free.budget_bound
    assert (
        free.conclusion.recommendation
        == sweep(study(tmp_path / "t"), Executor(ceiling)).conclusion.recommendation
    )


def test_a_confirmation_that_collapses_enters_the_fit_and_lowers_the_rate(tmp_path: Path) -> None:
    """A trap: full-length runs die where the shorter ones of the sweep lived."""
    full = StudyConfig().advice.horizon

    def trap(config: RunConfig) -> float:
        dies = config.evaluate and config.learning_rate > 5e-5
        return 1e-6 if dies else ceiling(config)

    result = sweep(study(tmp_path / "s", longest=full // 2), Executor(trap))
    runs = load_results(StudyFolder(tmp_path / "s"))
    confirmations = [run for run in runs if run.config.evaluate]
    assert any(is_event(run.run()) for run in confirmations)
    fitted = sum(stratum.runs for stratum in result.conclusion.fit.strata)
    assert fitted > len(runs) - len(confirmations)
    first = confirmations[0].config.learning_rate
    advice = result.conclusion.recommendation
    assert advice is None or advice.learning_rate < first


def test_nothing_collapses_so_nothing_is_recommended(tmp_path: Path) -> None:
    result = sweep(study(tmp_path / "s", rounds=2), Executor(lambda _: 1e9))
    assert result.conclusion.recommendation is None
    assert result.conclusion.refusal


def test_a_trial_folder_of_another_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        sweep(study(tmp_path / "s"), Executor(ceiling, die_after=2))
    path = tmp_path / "s/trials/0/config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "seed": 99}))
    with pytest.raises(CorruptStudyError, match="trials/0"):
        sweep(study(tmp_path / "s"), Executor(ceiling))


def test_a_lost_proposal_is_written_anew_from_the_journal(tmp_path: Path) -> None:
    """Also that of a confirmation of an earlier answer, and where the journal is lost, too."""
    folder = study(tmp_path / "s")
    sweep(folder, Executor(ceiling))
    paths = sorted((tmp_path / "s").glob("trials/*/proposal.json"))
    before = {path: path.read_bytes() for path in paths}
    assert any(b"confirm-" in content for content in before.values())
    for path in paths:
        path.unlink()
    sweep(folder, Executor(ceiling))
    assert {path: path.read_bytes() for path in paths} == before
    for path in paths:
        path.unlink()
    (tmp_path / "s" / "journal.log").unlink()
    sweep(folder, Executor(ceiling))
    assert {path: path.read_bytes() for path in paths} == before


def again(folder: Path, *, advice: dict[str, object] | None = None, **settings: object) -> SweepResult:
    """The same study with settings changed that may change."""
    config = study(folder, **settings)
    content = config.model_dump() | {"advice": config.advice.model_dump() | (advice or {})}
    return sweep(parse_config(StudyConfig, content, source="test"), Executor(ceiling))


@pytest.mark.parametrize(
    "advice",
    [{"horizon": 900}, {"risk": 0.2}, {"rule": "conservative", "horizon": 2000}, {"objective": "progress"}],
)
def test_a_changed_question_is_confirmed_anew_and_loses_no_run(
    tmp_path: Path, advice: dict[str, object]
) -> None:
    first = sweep(study(tmp_path / "s"), Executor(ceiling))
    second = again(tmp_path / "s", advice=advice)
    for result in (first, second):
        said = result.conclusion.recommendation
        assert said is not None
        assert said.confirmation is not None
        assert said.confirmation.sync_interval == said.sync_interval
        assert said.confirmation.learning_rate == said.learning_rate
        assert said.confirmation.updates == said.horizon
    fitted = [sum(stratum.runs for stratum in r.conclusion.fit.strata) for r in (first, second)]
    assert fitted[1] >= fitted[0]


@pytest.mark.parametrize("settings", [{"rounds": 1}, {"sharp_enough": 50.0}, {"max_updates": 300}])
def test_finished_trials_stay_in_the_fit_whatever_may_change(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    first = sweep(study(tmp_path / "s"), Executor(ceiling))
    second = again(tmp_path / "s", **settings)
    runs = [sum(stratum.runs for stratum in r.conclusion.fit.strata) for r in (first, second)]
    assert runs[1] >= runs[0]


def test_a_budget_is_used_up_by_what_early_ends_leave(tmp_path: Path) -> None:
    """Some run of the plan must not have fitted any more when the budget is said to bind."""
    result = sweep(study(tmp_path / "s", max_updates=700), Executor(ceiling))
    journal = Journal(tmp_path / "s/journal.log")
    planned = [run for stage in journal.stages() for run in journal.plan(stage) or []]
    made = len(load_results(StudyFolder(tmp_path / "s")))
    assert result.budget_bound
    assert result.spent + planned[made].updates > 700
