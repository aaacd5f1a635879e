from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import trainer
from calibrator.cli.source import EMBEDDED_STUDY, PRESETS, TEMPLATE
from calibrator.errors import StudyConfigError
from calibrator.study.config import StudyConfig, load_study_config, parse_config
from trainer.config import RunConfig

TRAINER_PRESETS = Path(trainer.__file__).parent / "presets"


@pytest.mark.parametrize(
    "path", [EMBEDDED_STUDY, TEMPLATE, *sorted(PRESETS.glob("*.toml"))], ids=lambda p: p.stem
)
def test_shipped_studies_parse(path: Path) -> None:
    load_study_config(path)


def test_every_commented_default_of_the_template_is_the_default() -> None:
    """Uncommenting every `# key = value` line must change nothing but the keys that have no default value."""
    text = TEMPLATE.read_text()
    lines = []
    for line in text.splitlines():
        body = line.removeprefix("# ")
        is_setting = line.startswith("# ") and (body.startswith("[") or " = " in body.split("#")[0])
        lines.append(body if is_setting and not body.startswith("calibrate") else line)
    opened = tomllib.loads("\n".join(lines))
    for section, key in (
        ("model", "revision"),
        ("sweep", "max_updates"),
        ("sweep", "longest"),
        ("trainer", "micro_batch_groups"),
        ("trainer", "prompt_limit"),
        ("trainer", "lora"),
    ):
        del opened[section][key]
    for key in ("workers", "gpus_per_trial"):
        del opened["resources"][key]
    del opened["task"]["options"]
    assert StudyConfig.model_validate(opened) == StudyConfig.model_validate(tomllib.loads(text))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[sweep]\nsync_intervals = [0]", "sweep.sync_intervals.0 = 0"),
        ("[sweep]\nlearning_rates = [-1e-3, 1e-2]", "sweep.learning_rates.0"),
        ("[sweep]\nlearning_rates = [1e-2, 1e-3]", "low < high"),
        ("[sweep]\nsync_intervals = [4, 4]", "twice"),
        ("[sweep]\nlearning_rates = [1e-3, inf]", "sweep.learning_rates.1"),
        ("[advice]\nhorizon = 0", "advice.horizon = 0"),
        ("[advice]\nrisk = 0.9", "advice.risk"),
        ("[trainer]\nepsilon = inf", "trainer.epsilon"),
        ("[sweep]\nseeds = [-1]", "sweep.seeds.0 = -1"),
        ("[sweep]\nlongest = 100\n[advice]\nhorizon = 5", "warmup"),
        ("[trainer]\ngroup_sise = 4", "unknown key trainer.group_sise"),
        ("[traner]\n", "unknown key traner"),
        ("[trainer]\nestimator = 'tic'", "sweep.estimators"),
        ("[trainer]\nwarmup = 400", "warmup"),
        ("[trainer\n", "not TOML"),
    ],
)
def test_bad_studies_are_one_line_that_names_the_key(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(content)
    with pytest.raises(StudyConfigError) as error:
        load_study_config(path)
    assert named in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value).strip()


def test_missing_study_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StudyConfigError, match="calibrate init"):
        load_study_config(tmp_path / "none.toml")


def test_advice_budget_and_resources_are_no_part_of_the_setting() -> None:
    base = StudyConfig()
    changes = {"advice": {"horizon": 99}, "sweep": {"max_updates": 7}, "resources": {"workers": 3}}
    changed = parse_config(StudyConfig, changes, source="test")
    assert changed.setting_digest() == base.setting_digest()
    other = parse_config(StudyConfig, {"trainer": {"epsilon": 0.3}}, source="test")
    assert other.setting_digest() != base.setting_digest()


def test_study_and_trainer_presets_agree() -> None:
    names = {path.stem for path in PRESETS.glob("*.toml")}
    assert names == {path.stem for path in TRAINER_PRESETS.glob("*.toml")}
    for name in names:
        study = load_study_config(PRESETS / f"{name}.toml")
        run = RunConfig.model_validate(tomllib.loads((TRAINER_PRESETS / f"{name}.toml").read_text()))
        assert (study.model, study.task, study.trainer) == (run.model, run.task, run.trainer)
        assert (study.vllm, study.probe, study.resources.engine) == (run.vllm, run.probe, run.engine)
