"""What each framework's log means: its axis of steps, how it refreshes weights, and what it leaves unsaid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from calibrator.runlogs.names import matches, plain

Interval = Literal["row", "one", "unknown"]


@dataclass(frozen=True)
class Framework:
    """Conventions of one framework, as of late 2026; docs/logs.md has their sources."""

    counts_updates: bool = False
    """Whether its steps are optimizer updates; else a step is a rollout batch or a weight version of some updates."""
    rows_per: str = ""
    """How many updates a row is, in the framework's own keys; told when it had to be assumed."""
    sync: Interval = "unknown"
    """What S is when it is not said: the updates of one row, 1, or not known (then 1 is assumed)."""
    interval: str = ""
    """S in the framework's own keys."""
    not_steps: tuple[str, ...] = ()
    """Columns that are named like steps and count something else."""
    hint: str = ""
    """Where the rewards are, when a log of it has none."""
    marks: tuple[str, ...] = ()
    """Columns by which it is recognised."""
    averages: bool = False
    """Whether a row holds means since the row before."""
    lag_in: Literal["updates", "versions", ""] = ""
    """Unit of its largest lag: updates, or weight versions of S updates each."""


_VERL = Framework(
    rows_per="ppo_epochs x parameter_sync_step in separate_async, x train_batch_size / ppo_mini_batch_size else",
    sync="row",
    interval="parameter_sync_step x ppo_epochs",
    marks=("critic/rewards/mean", "critic/score/mean", "actor/pg_loss", "actor/lr"),
    lag_in="versions",
)
_TRL = Framework(
    counts_updates=True,
    interval="weight_sync_steps, or steps_per_generation x num_iterations",
    marks=(
        "frac_reward_zero_std",
        "completions/mean_length",
        "completion_length",
        "reward_std",
        "train/reward_std",
        "train/epoch",
    ),
    averages=True,
    lag_in="versions",
)

FRAMEWORKS: dict[str, Framework] = {
    "calibrate": Framework(counts_updates=True, marks=("reward_mean",), lag_in="updates"),
    "verl": _VERL,
    "verl-console": _VERL,
    "trl": _TRL,
    "trl-console": _TRL,
    "prime-rl": Framework(
        counts_updates=True,
        sync="one",
        hint="prime-rl's orchestrator writes rewards to a metrics.jsonl of its own: append that file to this one, or ",
        marks=(
            "train/agg/effective/*/rewards/*/mean",
            "train/agg/all/*/rewards/*/mean",
            "mismatch_kl/all/mean",
            "grad. norm",
        ),
        lag_in="updates",
    ),
    "tinker": Framework(
        rows_per="num_substeps",
        sync="row",
        interval="num_substeps",
        marks=("progress/batch", "env/all/reward/total"),
        lag_in="versions",
    ),
    "slime": Framework(
        rows_per="num_steps_per_rollout (rows of rollout/step)",
        interval="update_weights_interval x num_steps_per_rollout",
        marks=("rollout/raw_reward", "train/lr-pg_0", "rollout/step"),
    ),
    "areal": Framework(
        rows_per="actor.ppo_n_minibatches",
        sync="row",
        interval="actor.ppo_n_minibatches",
        marks=("ppo_actor/task_reward/avg", "ppo_actor/update/lr", "ppo_actor/update/grad_norm"),
        lag_in="versions",
    ),
    "skyrl": Framework(
        rows_per="update_epochs_per_batch",
        sync="row",
        interval="1 for each row",
        marks=("reward/avg_raw_reward", "policy/policy_lr", "policy/final_loss"),
        lag_in="updates",
    ),
    "nemo-rl": Framework(
        rows_per="num_prompts_per_step x num_generations_per_prompt / train_global_batch_size",
        sync="row",
        interval="the same",
        marks=("train/gen_kl_error", "train/token_mult_prob_error"),
    ),
    "open-instruct": Framework(
        rows_per="num_mini_batches x num_epochs",
        sync="row",
        interval="the same",
        not_steps=("global_step", "_step"),  # episodes
        marks=("training_step", "scores", "objective/verifiable_reward"),
    ),
    "openrlhf": Framework(
        rows_per="max_epochs x rollout.batch_size x n_samples / train.batch_size",
        sync="row",
        interval="the same",
        marks=("train/actor_lr", "train/rollout/reward_mean"),
    ),
    "roll": Framework(
        rows_per="rollout batch / global batch x ppo_epochs",
        interval="model_update_frequency rows",
        marks=("actor/train_infer_ratio_mean", "actor/ppo_ratio_clipfrac"),
    ),
    "pipelinerl": Framework(
        counts_updates=True,
        interval="weight_update_interval / samples per update",
        marks=("rl/reward", "stats/completed_steps", "stats/lr"),
    ),
    "titanrl": Framework(
        counts_updates=True,
        sync="one",
        marks=("trainer/policy_version", "bit_wise/logprob_diff/mean"),
        lag_in="updates",
    ),
    "csv": Framework(rows_per="one row of the table"),
    "tensorboard": Framework(rows_per="one step of the log"),
    "other": Framework(rows_per="one row of the log"),
}


ALSO_CALLED = {
    **dict.fromkeys(("own", "grpo-calibrator", "calibrator"), "calibrate"),
    **dict.fromkeys(("verl-jsonl", "verl-file", "verl-tensorboard", "verl-async"), "verl"),
    **dict.fromkeys(("trl-async", "trl-trainer-state", "trl-state", "trl-grpo", "hf"), "trl"),
    **dict.fromkeys(("slime-jsonl", "miles"), "slime"),
    **dict.fromkeys(("tb", "tensorboard-events"), "tensorboard"),
    **dict.fromkeys(("generic", "jsonl", "wandb", "unknown"), "other"),
    "primerl": "prime-rl",
    "tinker-cookbook": "tinker",
    "nemo": "nemo-rl",
    "torchtitan": "titanrl",
    "pipeline-rl": "pipelinerl",
}
"""Other names that people give them."""


def guess(form: str, names: Iterable[str]) -> str:
    """The framework that writes this format with these columns."""
    held = {plain(name) for name in names}
    if {"update", "version", "reward_mean"} <= held:
        return "calibrate"
    if form in ("trl", "verl-console"):
        return form
    # slime prints its rows as dictionaries, too; verl's names are borrowed by others, so it comes after them.
    order = (
        "slime",
        "prime-rl",
        "tinker",
        "areal",
        "skyrl",
        "nemo-rl",
        "open-instruct",
        "openrlhf",
        "roll",
        "verl",
    )
    found = [name for name in (*order, "pipelinerl", "titanrl", "trl") if _is_marked(name, held)]
    if form == "trl-console" and found[:1] != ["slime"]:
        return form
    return found[0] if found else {"csv": "csv", "tensorboard": "tensorboard"}.get(form, "other")


def _is_marked(framework: str, held: set[str]) -> bool:
    return any(matches(mark, name) for mark in FRAMEWORKS[framework].marks for name in held)
