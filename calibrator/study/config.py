"""study.toml: what a user says about a study. Unknown keys fail, and every key may be left out."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from calibrator.advice.types import Objective, Rule
from calibrator.errors import StudyConfigError
from trainer.config import (
    EMBEDDED,
    Config,
    LogConfig,
    ModelConfig,
    ProbeConfig,
    RunConfig,
    TaskConfig,
    TrainerConfig,
    VllmConfig,
    digest,
)
from trainer.names import EngineName, EstimatorName

SCHEMA_VERSION = 1
"""Version of study.toml and of every file that a study writes."""

Interval = Annotated[int, Field(ge=1, le=10**6)]
Seed = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)]

MOST_PROBLEMS = 8
"""Problems of a validation that one message lists."""


class SweepConfig(Config):
    sync_intervals: Annotated[tuple[Interval, ...], Field(min_length=1)] = (1, 4, 16, 64)
    """Sync intervals S to sweep, in updates."""
    learning_rates: tuple[Rate, Rate] = (1e-6, 3.2e-5)
    """Lowest and highest eta of the first round; widened fourfold when all runs survive or all die."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    """Seeds of the first trials of each estimator; later trials count on from the largest."""
    estimators: Annotated[tuple[EstimatorName, ...], Field(min_length=1)] = ("gmc",)
    """Estimators to sweep. The one of [trainer] decides the recommendation, the others are shown beside it."""
    rates_per_interval: Annotated[int, Field(ge=1, le=64)] = 2
    """Learning rates for each interval in the coarse first round."""
    rounds: Annotated[int, Field(ge=1)] = 4
    """Most rounds: one coarse round, then rounds of the runs that narrow the recommendation most."""
    round_size: Annotated[int, Field(ge=1, le=256)] = 4
    """Runs of a round after the first, for the estimator that decides; the others get half as many."""
    longest: Annotated[int, Field(ge=8)] | None = None
    """Most updates of one run; left out: the horizon of [advice]."""
    max_updates: Annotated[int, Field(ge=1)] | None = None
    """Most updates of the whole study, confirmation included; left out: no limit."""
    sharp_enough: Annotated[float, Field(gt=1)] = 1.5
    """The sweep ends early when the median largest stable eta is within this factor of its 5 % quantile."""
    confirmations: Annotated[int, Field(ge=0, le=64)] = 2
    """Runs of full length at the recommended four numbers; 0: the recommendation is not confirmed."""

    @field_validator("learning_rates")
    @classmethod
    def _ascending(cls, rates: tuple[float, float]) -> tuple[float, float]:
        if rates[0] >= rates[1]:
            raise ValueError(f"give [low, high] with low < high, not {list(rates)}")
        return rates

    @field_validator("sync_intervals", "estimators", "seeds")
    @classmethod
    def _different(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) != len(values):
            raise ValueError(f"{list(values)} holds a value twice")
        return values


class AdviceConfig(Config):
    horizon: Annotated[int, Field(ge=1)] = 400
    """T: updates of the run that you intend."""
    risk: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Accepted probability that the recommended setting is prone to collapse."""
    rule: Rule = "stable"
    objective: Objective = "time"


class ResourcesConfig(Config):
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Trials at a time; left out: one a CPU core, or as many as the GPUs allow."""
    gpus_per_trial: Annotated[int, Field(ge=0)] | None = None
    """GPUs of one trial; left out: 1 where there are GPUs, else 0."""
    engine: EngineName = "hf"
    """What generates: `hf` (transformers), `vllm` (in each trial's process) or `vllm-server` (a process beside it)."""
    placement: Literal["colocated", "separate"] = "colocated"
    time_batches: bool = False
    """Whether two short runs first time a quarter of the batch and four times it, so that cost.json tells what other
    P and G cost."""


class OutputConfig(Config):
    folder: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")] = "runs/study"
    """Study folder, relative to the folder in which the command runs."""


class StudyConfig(Config):
    schema_version: int = SCHEMA_VERSION
    """Version of this file's keys; left out: the present one."""
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    trainer: TrainerConfig = TrainerConfig()
    probe: ProbeConfig = ProbeConfig()
    vllm: VllmConfig = VllmConfig()
    sweep: SweepConfig = SweepConfig()
    advice: AdviceConfig = AdviceConfig()
    resources: ResourcesConfig = ResourcesConfig()
    log: LogConfig = LogConfig()
    output: OutputConfig = OutputConfig()

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, content: Any) -> Any:
        """First of all, or a newer file would be refused for its keys."""
        found = content.get("schema_version", SCHEMA_VERSION) if isinstance(content, dict) else SCHEMA_VERSION
        if wrong := wrong_version(found):
            raise ValueError(f"{wrong}: write the file anew with `calibrate init`, or correct schema_version")
        return content

    @model_validator(mode="after")
    def _consistent(self) -> StudyConfig:
        if self.trainer.estimator not in self.sweep.estimators:
            raise ValueError(
                f"sweep.estimators = {list(self.sweep.estimators)} lacks trainer.estimator = "
                f"{self.trainer.estimator!r}, which decides the recommendation: add it"
            )
        if self.vllm.tensor_parallel > 1 and self.resources.engine != "vllm-server":
            raise ValueError(
                f"vllm.tensor_parallel = {self.vllm.tensor_parallel} needs GPUs beside the learner's: set "
                'resources.engine = "vllm-server"'
            )
        shortest = min(self.longest, self.advice.horizon)
        if self.trainer.warmup >= shortest:
            raise ValueError(
                f"trainer.warmup = {self.trainer.warmup} is not shorter than runs of {shortest} updates "
                "(sweep.longest, advice.horizon)"
            )
        return self

    @property
    def longest(self) -> int:
        """Most updates of one run of the sweep."""
        return self.sweep.longest or self.advice.horizon

    @property
    def is_embedded_default(self) -> bool:
        """Whether model and task are those that ship with the package."""
        return self.model.path == EMBEDDED and self.task.name == "running-sum"

    def setting(self) -> dict[str, Any]:
        """What trials depend on; a study folder holds trials of one setting only.

        Horizon, risk, rule, objective, budget, rounds, resources other than the engine, and logging may change
        between calls.
        """
        sweep = self.sweep.model_dump(
            mode="json", include={"sync_intervals", "learning_rates", "seeds", "estimators"}
        )
        kept = {"model", "task", "trainer", "probe"}
        return {
            **self.model_dump(
                mode="json", include=kept, exclude={"task": {"scoring_timeout", "on_scoring_error"}}
            ),
            "sweep": sweep,
            "engine": self.resources.engine,
            "max_sequences": self.vllm.max_sequences,
        }

    def run_config(
        self,
        *,
        estimator: str,
        sync_interval: int,
        learning_rate: float,
        updates: int,
        seed: int,
        evaluate: bool = False,
    ) -> RunConfig:
        """Configuration of one run with this study's model, task and trainer settings."""
        return RunConfig(
            model=self.model,
            task=self.task,
            trainer=TrainerConfig.model_validate({**self.trainer.model_dump(), "estimator": estimator}),
            probe=self.probe,
            engine=self.resources.engine,
            log=self.log,
            vllm=self.vllm,
            sync_interval=sync_interval,
            learning_rate=learning_rate,
            updates=updates,
            seed=seed,
            evaluate=evaluate,
        )

    def setting_digest(self) -> str:
        return digest(self.setting())


def load_study_config(path: Path) -> StudyConfig:
    """Parse study.toml. Raises StudyConfigError naming the file and the key."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise StudyConfigError(f"{path}: no such file; `calibrate init` writes one to start from") from None
    except OSError as error:
        raise StudyConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        parsed = tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StudyConfigError(f"{path} is not TOML: {error}") from error
    return parse_config(StudyConfig, parsed, source=str(path))


def wrong_version(found: object) -> str | None:
    """What is wrong with a file's schema version; None when it is the present one."""
    if found == SCHEMA_VERSION and not isinstance(found, bool):
        return None
    if isinstance(found, int) and found > SCHEMA_VERSION:
        return f"schema version {found} is newer than {SCHEMA_VERSION}, which this program knows; install a newer one"
    return f"schema version {found!r} is not {SCHEMA_VERSION}, which this program reads and writes"


ConfigT = TypeVar("ConfigT", bound=Config)


def parse_config(model: type[ConfigT], data: dict[str, Any], *, source: str) -> ConfigT:
    """Validate `data`; raises StudyConfigError with one line that names the key and what is wrong with it."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise StudyConfigError(f"{source}: {describe(error)}") from error


def describe(error: ValidationError) -> str:
    """The problems of a validation on one line, each with its key; of many the first MOST_PROBLEMS."""
    problems = [_problem(detail) for detail in error.errors()]
    more = len(problems) - MOST_PROBLEMS
    return "; ".join([*problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])


def _problem(detail: Any) -> str:
    key = ".".join(map(str, detail["loc"]))
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        return f"unknown key {key}; remove it or correct its name"
    value = (
        ""
        if detail["type"] in ("missing", "model_type") or isinstance(detail["input"], dict)
        else f" = {detail['input']!r}"
    )
    return f"{key}{value}: {message}" if key else message
