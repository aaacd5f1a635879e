"""Configuration of one training run. Importing this module never imports torch.

Hand-written configuration is TOML, machine-written configuration is JSON; both are parsed by these models,
which fail on unknown keys. Learning rates are per optimizer update; everything that counts is counted in updates.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainer.names import EngineName, EstimatorName, ScheduleName

EMBEDDED = "embedded"
"""Name of the policy that ships with the package, see `trainer/models`."""


class Config(BaseModel):
    """Base of every configuration object: unknown keys fail, values do not change after parsing."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelConfig(Config):
    path: str = EMBEDDED
    """Folder of a Hugging Face causal language model with its tokenizer, its name on the hub, or `embedded`."""
    revision: str | None = None
    """Commit, tag or branch of a model that is given by name."""
    download: bool = False
    """Whether a model given by name may be fetched from the hub; otherwise it must be in the local cache."""


class TaskConfig(Config):
    name: str = "running-sum"
    """`running-sum`, `jsonl`, `reasoning-gym:NAME`, or the user's own as `module:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the task, for example `{digits = 8}`; docs/tasks.md has those of each."""
    held_out: Annotated[int, Field(ge=8)] = 1024
    """Held-out prompts, never used in training, on which the final policy is scored; a small file repeats its own."""
    scoring_timeout: Annotated[float, Field(gt=0, le=1e6)] = 10.0
    """Seconds that scoring one completion may take; a call of `score` may take that for each of its completions."""
    on_scoring_error: Literal["stop", "skip"] = "stop"
    """When scoring raises, hangs or gives no number: end the run, or leave the completion out of the update's rewards
    and advantages, count it in `unscored` and show it in the log."""


class OptimizerConfig(Config):
    name: Literal["adamw"] = "adamw"
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


class Thresholds(Config):
    """Where the baselines' caps act, relative to a ratio of 1. Each estimator reads its own: their scales differ."""

    gspo_low: Annotated[float, Field(gt=0, lt=1)] = 3e-4
    """Lower clip of the length-normalised trajectory ratio, `gspo` only: 1 - gspo_low."""
    gspo_high: Annotated[float, Field(gt=0)] = 4e-4
    """Upper clip of the length-normalised trajectory ratio, `gspo` only: 1 + gspo_high."""
    cispo_low: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Least token weight, `cispo` only: 1 - cispo_low; 1: no lower limit."""
    cispo_high: Annotated[float, Field(gt=0)] = 4.0
    """Largest token weight, `cispo` only: 1 + cispo_high."""
    tis_high: Annotated[float, Field(gt=0)] = 1.0
    """Largest token weight, `tis` only: 1 + tis_high."""
    mis_low: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Tokens whose ratio is below 1 - mis_low have no weight, `mis` only; 1: no lower limit."""
    mis_high: Annotated[float, Field(gt=0)] = 4.0
    """Tokens whose ratio is above 1 + mis_high have no weight, `mis` only."""


class LoraConfig(Config):
    """Low-rank adapters (LoRA, arXiv 2106.09685): W stays as it is, B and A of W + (alpha / rank) B A are trained.

    Nothing is dropped out: the engine samples from the very policy that is trained.
    """

    rank: Annotated[int, Field(ge=1, le=4096)] = 16
    """Columns of B and rows of A."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 32.0
    """B A is scaled by alpha / rank."""
    target_modules: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = "all-linear"
    """Names of the linear layers that get adapters, such as `["q_proj", "v_proj"]`; `all-linear`: all of them but the
    output head."""


class TrainerConfig(Config):
    """What is held fixed over a sweep: the laws hold for these settings only."""

    estimator: EstimatorName = "gmc"
    """How stale trajectories are weighted, see `trainer.algorithms`."""
    group_size: Annotated[int, Field(ge=2, le=65536)] = 16
    """G: completions per prompt."""
    prompts_per_update: Annotated[int, Field(ge=1, le=10**6)] = 8
    """P: prompts per update. The batch of an update is G x P trajectories."""
    epsilon: Annotated[float, Field(gt=0)] = 0.2
    """Ratio threshold: trajectory ratios (`tic`, `tic_zero`) or mean group mass (`gmc`) are capped at 1 + epsilon."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Lower clip of the token ratio, `grpo` only: 1 - clip_low."""
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    """Upper clip of the token ratio, `grpo` only: 1 + clip_high."""
    thresholds: Thresholds = Thresholds()
    advantage: Literal["standardised", "centred"] = "standardised"
    """Rewards less the group's mean, divided by its standard deviation or not; Dr. GRPO (arXiv 2503.20783) does not."""
    aggregation: Literal["token-mean", "sequence-mean", "constant"] = "token-mean"
    """What the sum over tokens is divided by: all response tokens of the batch; each trajectory's own length, then the
    number of trajectories; or trajectories x response_limit, whatever the lengths, as in Dr. GRPO."""
    optimizer: OptimizerConfig = OptimizerConfig()
    warmup: Annotated[int, Field(ge=0)] = 10
    """Updates over which the learning rate rises linearly to its constant value."""
    grad_clip: Annotated[float, Field(ge=0)] = 1.0
    """Largest gradient norm; 0: no clipping."""
    response_limit: Annotated[int, Field(ge=1, le=10**6)] = 9
    """Largest number of response tokens, the end token included."""
    temperature: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    """Sampling temperature. Ratios are those of the tempered distribution, the one really sampled from."""
    micro_batch_groups: Annotated[int, Field(ge=1)] | None = None
    """Whole groups per forward and backward pass; left out: the whole batch at once."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the forward and backward passes; the optimizer always holds float32 weights."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory for about a third more time."""
    lora: LoraConfig | None = None
    """Train low-rank adapters; left out: all weights are trained."""
    prompt_limit: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Largest number of prompt tokens; left out: what the model's positions leave beside the response."""
    share_prompts: bool = True
    """Whether the learner reads the prompt of a group once, where the model allows it; otherwise once a completion."""
    behaviour_logprobs: Literal["engine", "learner"] = "engine"
    """Where mu comes from: as the engine sampled, or recomputed with the learner's code and the same weights."""


class ProbeConfig(Config):
    every: Annotated[int, Field(ge=1)] = 8
    """Updates between two probes of the learner's own reward."""
    prompts: Annotated[int, Field(ge=8)] = 128
    """Held-out prompts of a probe, the same ones every time."""
    staleness_every: Annotated[int, Field(ge=0)] = 0
    """Updates between two probes of the staleness bias; 0: none. Needs prompts_per_update >= 2."""
    group_size: Annotated[int, Field(ge=0, le=65536)] = 0
    """Completions for each of 8 prompts that are drawn once, in the middle of the run at its largest lag, to tell what
    larger groups would see; 0: none. Lockstep only."""


class OverlapConfig(Config):
    """Schedule `overlap`: generation and learning at the same time."""

    max_lag: Annotated[int, Field(ge=0)] | None = None
    """Bound on the lag in updates, kept by pacing generation; left out: 2 S - 1, one cycle ahead."""
    in_flight: Literal["finish", "continue"] = "finish"
    """Responses being written when new weights arrive: finished with the old ones, or continued with the new ones."""
    patience: Annotated[float, Field(gt=0, le=1e7)] = 1800.0
    """Seconds that the learner waits for rollouts before it calls the rollout process hung, and that `vllm-server` may
    take without finishing a request."""


class VllmConfig(Config):
    """Engines `vllm` (in the process of whoever generates) and `vllm-server` (a process of its own)."""

    memory_share: Annotated[float, Field(gt=0, le=1)] = 0.4
    """Share of a GPU's memory that vLLM takes (`gpu_memory_utilization`)."""
    cache_gib: Annotated[int, Field(ge=1)] = 1
    """GiB of key-value cache on a CPU."""
    max_sequences: Annotated[int, Field(ge=1)] = 256
    """Sequences that are decoded together (`max_num_seqs`)."""
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """GPUs that one copy of the model is spread over (`tensor_parallel_size`), `vllm-server` only."""
    sleep: bool = True
    """On a GPU shared with the learner, in lockstep: free vLLM's memory while the learner works."""
    transfer: Literal["auto", "file", "ipc", "nccl"] = "auto"
    """How weights reach another process; auto: `file` on a CPU, `ipc` on a shared GPU, `nccl` between GPUs."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the server on 127.0.0.1; left out: a Unix socket in a private folder, which needs none."""
    start_timeout: Annotated[float, Field(gt=0, le=1e7)] = 600.0
    """Seconds within which the engine must be up, and answer a command."""


class LogConfig(Config):
    """Where metrics go beside `metrics.jsonl`. None of these ever stops a run."""

    tensorboard: bool = False
    trackio: bool = False
    wandb: Literal["off", "offline", "online"] = "off"
    project: str = "grpo-calibrator"


OPERATIONAL: dict[str, Any] = {
    "task": {"scoring_timeout", "on_scoring_error"},
    "log": True,
    "checkpoints_kept": True,
    "overlap": {"patience"},
    "vllm": {"memory_share", "cache_gib", "sleep", "tensor_parallel", "transfer", "port", "start_timeout"},
}
"""Keys of a run that its results do not depend on: they may change when it is continued."""


class RunConfig(Config):
    """Everything that a run is a function of: same config, same `metrics.jsonl`, byte for byte on a CPU."""

    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    trainer: TrainerConfig = TrainerConfig()
    probe: ProbeConfig = ProbeConfig()
    schedule: ScheduleName = "lockstep"
    overlap: OverlapConfig = OverlapConfig()
    engine: EngineName = "hf"
    vllm: VllmConfig = VllmConfig()
    log: LogConfig = LogConfig()
    sync_interval: Annotated[int, Field(ge=1)] = 4
    """S: updates between two refreshes of the behaviour weights."""
    learning_rate: Annotated[float, Field(gt=0, le=1e3)] = 1e-3
    """eta: learning rate after warm-up."""
    updates: Annotated[int, Field(ge=1)] = 400
    """Length of the run; training may end earlier when asked to (see `trainer.loop`)."""
    seed: Annotated[int, Field(ge=0)] = 0
    record_ratios: bool = True
    """Whether to write the compact shards `ratios-*.safetensors` (group, reward, lag, log-ratio per trajectory)."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 32
    """Least number of updates between two checkpoints; they are written at synchronizations."""
    checkpoints_kept: Annotated[int, Field(ge=1)] = 1
    """Checkpoints that stay on disk; a resume uses the newest that can be read."""
    evaluate: bool = False
    """Whether to score the policy on all held-out prompts before and after the run."""
    cpu_threads: Annotated[int, Field(ge=1)] = 1
    """Threads of a run on a CPU; part of the config, since sums depend on it in the last bit."""

    @model_validator(mode="after")
    def _warmup_fits(self) -> RunConfig:
        if self.trainer.warmup > self.updates:
            raise ValueError(
                f"trainer.warmup = {self.trainer.warmup} is longer than updates = {self.updates}: "
                "shorten the warm-up or lengthen the run"
            )
        return self

    @model_validator(mode="after")
    def _one_process_has_one_gpu(self) -> RunConfig:
        if self.vllm.tensor_parallel > 1 and self.engine != "vllm-server":
            raise ValueError(
                f"vllm.tensor_parallel = {self.vllm.tensor_parallel} needs GPUs beside the learner's: set "
                'engine = "vllm-server" (in a study: resources.engine)'
            )
        return self

    @model_validator(mode="after")
    def _staleness_probe_has_two_halves(self) -> RunConfig:
        if self.probe.staleness_every and self.trainer.prompts_per_update < 2:
            raise ValueError(
                f"probe.staleness_every = {self.probe.staleness_every} compares two halves of the prompts, but "
                "trainer.prompts_per_update = 1: raise it to 2 or more, or set probe.staleness_every = 0"
            )
        return self

    @model_validator(mode="after")
    def _lag_bound_holds_a_cycle(self) -> RunConfig:
        if self.schedule == "overlap" and self.lag_bound < self.sync_interval - 1:
            raise ValueError(
                f"overlap.max_lag = {self.lag_bound} is below S - 1 = {self.sync_interval - 1}: "
                "within a cycle the lag reaches that; raise it or lower sync_interval"
            )
        if (
            self.schedule == "overlap"
            and self.overlap.in_flight == "continue"
            and self.trainer.behaviour_logprobs == "learner"
        ):
            raise ValueError(
                'overlap.in_flight = "continue" mixes versions within a response, which trainer.behaviour_logprobs = '
                '"learner" cannot recompute: choose one of the two'
            )
        return self

    @property
    def lag_bound(self) -> int:
        """Largest lag in updates that the schedule lets happen."""
        if self.schedule == "lockstep":
            return self.sync_interval - 1
        return self.overlap.max_lag if self.overlap.max_lag is not None else 2 * self.sync_interval - 1

    def digest(self) -> str:
        """Hexadecimal digest of what results depend on; decides whether a resume is legal."""
        return digest(self.model_dump(mode="json", exclude=dict(OPERATIONAL)))


def learning_rate_at(update: int, *, peak: float, warmup: int) -> float:
    """Learning rate applied at `update` (counted from 0): linear warm-up over `warmup` updates, then `peak`."""
    return peak * min(1.0, (update + 1) / warmup) if warmup else peak


def cumulative_learning_rate(version: int, *, peak: float, warmup: int) -> float:
    """L(version): sum of the learning rates applied at updates 0 .. version - 1, in LR x updates."""
    ramp = min(version, warmup)
    return peak * (ramp * (ramp + 1) / (2 * warmup) + (version - ramp)) if warmup else peak * version


def digest(payload: object) -> str:
    """First 16 hexadecimal digits of the SHA-256 of `payload` as canonical JSON."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
