"""Short runs that time other batches than the sweep's, so that the cost of other P and G can be told."""

from __future__ import annotations

from pathlib import Path

from calibrator.study.config import StudyConfig
from calibrator.study.results import CONFIG, VERDICT
from calibrator.study.store import PACE, StudyFolder, write_json
from trainer.config import RunConfig

CYCLES = 3
"""Of each run; the first is cold."""
FACTORS = (0.25, 4.0)
"""Batches, as multiples of the sweep's, that bracket what G and P are usually changed to."""


def pace_runs(config: RunConfig) -> list[RunConfig]:
    """Runs like `config` with a quarter and with four times its prompts, without ratios and probes.

    Where P is below 4, the small one has fewer completions instead.
    """
    return [_paced(config, factor) for factor in FACTORS]


def _paced(config: RunConfig, factor: float) -> RunConfig:
    trainer = config.trainer
    prompts, completions = trainer.prompts_per_update * factor, trainer.group_size
    if prompts < 1:
        completions = max(2, round(completions * prompts))
    changed = {"prompts_per_update": max(1, round(prompts)), "group_size": completions, "warmup": 0}
    return config.model_copy(
        update={
            "trainer": trainer.model_copy(update=changed),
            "updates": CYCLES * config.sync_interval,
            "probe": config.probe.model_copy(update={"every": 10**9}),
            "record_ratios": False,
            "evaluate": False,
        }
    )


def pace_folders(config: StudyConfig, study: StudyFolder) -> list[Path]:
    """Folders of the pace runs that are still to be made, with their configurations."""
    intervals, rate = config.sweep.sync_intervals, config.sweep.learning_rates[0]
    run = config.run_config(
        estimator=config.trainer.estimator,
        sync_interval=sorted(intervals)[len(intervals) // 2],
        learning_rate=rate,
        updates=config.advice.horizon,
        seed=0,
    )
    folders = []
    for number, paced in enumerate(pace_runs(run)):
        folder = study.root / PACE / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / VERDICT).is_file():
            write_json(folder / CONFIG, paced.model_dump(mode="json"))
            folders.append(folder)
    return folders
