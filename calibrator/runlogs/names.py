"""What the columns of the frameworks' logs are called, and which of them stands for what."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

REWARD = (
    "critic/rewards/mean",
    "critic/score/mean",
    "ppo_actor/task_reward/avg",
    "rollout/raw_reward",
    "train/agg/effective/all/rewards/all/mean",
    "train/agg/effective/*/rewards/*/mean",
    "train/agg/all/*/rewards/*/mean",
    "reward/avg_raw_reward",
    "reward",
    "train/reward",
    "scores",
    "train/rollout/reward_mean",
    "rollout/reward_mean",
    "rollout/reward",
    "env/all/reward/total",
    "env/*/reward/total",
    "rl/reward",
    "reward_mean",
    "reward/all/mean",
    "reward/mean",
    "rewards/mean",
    "train/reward_mean",
    "train/rewards/mean",
    "mean_reward",
    "avg_reward",
    "reward/avg",
    "objective/verifiable_reward",
    "loss/avg_final_rewards",
    "critic/reward/mean",
    "score",
    "score/mean",
    "train/score",
)
"""In order of preference (the table of import, then what logs of the field also use)."""

RAW = REWARD[:2]
"""verl's reward after and before penalties: different series, on one scale."""

FIELDS: dict[str, tuple[str, ...]] = {
    "learning_rate": (
        "actor/lr",
        "ppo_actor/update/lr",
        "train/lr-pg_0",
        "optim/lr",
        "policy/policy_lr",
        "learning_rate",
        "train/learning_rate",
        "train/lr",
        "lr",
        "train/actor_lr",
        "actor_lr",
        "trainer/lr",
        "stats/lr",
        "policy/lr",
    ),
    "grad_norm": (
        "actor/grad_norm",
        "ppo_actor/update/grad_norm",
        "train/grad_norm",
        "optim/grad_norm",
        "policy/grad_norm",
        "grad_norm",
        "train/actor_grad_norm",
        "actor_grad_norm",
        "trainer/grad_norm/mean",
        "stats/grad_norm",
        "policy/raw_grad_norm",
        "grad. norm",
        "grad norm",
    ),
    "loss": (
        "actor/loss",
        "actor/pg_loss",
        "ppo_actor/update/actor_loss/avg",
        "train/loss",
        "train/pg_loss",
        "loss/mean",
        "policy/final_loss",
        "policy/policy_loss",
        "loss",
        "train/policy_loss",
        "policy_loss",
        "loss/policy_avg",
        "rl/loss",
    ),
    "entropy": (
        "actor/entropy",
        "actor/entropy_loss",
        "ppo_actor/update/entropy/avg",
        "train/entropy_loss",
        "entropy/all/mean",
        "policy/policy_entropy",
        "entropy",
        "train/entropy",
        "train/approx_entropy",
        "policy/entropy_avg",
        "optim/entropy",
        "trainer/entropy/mean",
        "rl/entropy",
        "current_entropy",
    ),
    "kl": (
        "rollout_corr/kl",
        "rollout_corr/k3_kl",
        "ppo_actor/update/behave_approx_kl/avg",
        "train/train_rollout_logprob_abs_diff",
        "mismatch_kl/all/mean",
        "policy/rollout_train_logprobs_abs_diff_mean",
        "kl",
        "train/kl",
        "train/gen_kl_error",
        "debug/vllm_local_reverse_kl",
        "train/vllm_kl",
        "optim/kl_sample_train_v1",
        "bit_wise/logprob_diff/mean",
        "rl/kl_new_old",
        "mismatch kl",
        "actor/ppo_kl",
        "actor/kl_loss",
    ),
    "ratio_max": (
        "rollout_corr/rollout_is_max",
        "ppo_actor/update/behave_imp_weight/max",
        "train/probs_ratio_max",
        "actor/ratio_max",
        "policy/loss_metrics/cispo/ratio_max",
    ),
    "clip_fraction": (
        "actor/pg_clipfrac",
        "ppo_actor/update/clip_ratio/avg",
        "train/pg_clipfrac",
        "is_masked/mean",
        "policy/loss_metrics/clip_ratio",
        "clip_ratio/region_mean",
        "clip_ratio",
        "policy/clipfrac_avg",
        "train/ppo_clip_ratio",
        "loss/ratio_clipped_frac",
    ),
    "ess": ("rollout_corr/rollout_is_eff_sample_size", "rl/ess", "ess"),
    "response_length": (
        "response_length/mean",
        "ppo_actor/seq_len/avg",
        "rollout/response_len/mean",
        "train/agg/effective/num_output_tokens/mean",
        "generate/avg_num_tokens",
        "completions/mean_length",
        "completion_length",
        "val/sequence_lengths",
        "train/rollout/response_length_mean",
        "response_length",
    ),
    "truncated": (
        "response_length/clip_ratio",
        "ppo_actor/no_eos_ratios/avg",
        "rollout/truncated_ratio",
        "train/agg/effective/is_truncated/mean",
        "completions/clipped_ratio",
        "train/rollout/truncated_rate",
        "truncated",
    ),
    "dead_groups": ("frac_reward_zero_std", "train/frac_reward_zero_std"),
    "solved": (
        "env/all/by_group/frac_all_good",
        "train/agg/all/solved_all",
        "train/agg/all/*/solved_all",
    ),
    "unsolved": (
        "env/all/by_group/frac_all_bad",
        "train/agg/all/solved_none",
        "train/agg/all/*/solved_none",
    ),
    "signal": ("signal", "env/all/by_group/frac_mixed", "train/baseline_reward/pct_mixed"),
    "off_policy": (
        "off_policy/max",
        "async/staleness_max",
        "training/off_policy/trajectory_staleness_worst/max",
        "ppo_actor/update/version_stats/sample_staleness_theta_max",
        "sample/staleness_max",
        "train_batch/policy_age_max",
    ),
}
"""Field of a row -> names that stand for it; the first that holds numbers is taken."""

STEPS = (
    "training/global_step",
    "training_step",
    "progress/batch",
    "stats/completed_steps",
    "trainer/policy_version",
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "step",
    "_step",
    "train/step",
    "train_step",
    "iteration",
)
UPDATE = "update"
"""A column of this name counts updates, whatever wrote the log."""
TRAIN_STEP, ROLLOUT_STEP = "train/step", "rollout/step"
"""slime's two axes: updates, and rollout batches."""

OWN = (
    "version",
    "reward_se",
    "probe_version",
    "probe_reward",
    "probe_se",
    "initial_reward",
    "initial_se",
    "cumulative_lr",
    "grad_cosine",
    "group_mass_mean",
    "group_mass_max",
    "cap_activation",
    "log_ratio_mean",
    "log_ratio_abs_mean",
    "log_ratio_max",
    "lag_max",
    "mismatch_mean",
    "mismatch_log_ratio",
    "epoch",
)
"""Columns of our own rows that no framework shares, and the epoch, which tells where a log without steps goes back."""

_SPREAD = re.compile(
    r"(^|[/_\-. @])(std|min|max|var|median|count|num|best|worst|minimum|maximum)([/_\-. @]|$)"
)
_ACCURACY = re.compile(
    r"(^|[/_\-. ])(acc|accuracy|accuracies|correct|correctness|correct_rate|pass_?rate|pass@\d+|pass_at_\d+"
    r"|solve_?rate|exact_match|success|success_rate)([/_\-. @]|$)"
)
_EVALUATION = re.compile(
    r"^(eval|evals|evaluation|val|valid|validation|test|held_?out)([-_/. ]|$)|/(eval|validation)/"
)
_SCORED = re.compile(r"(reward|score|acc|pass@|pass_at)")
_SCALED_RATE = re.compile(
    r"(?P<name>.*\b(?:lr|learning_rate))\s*\(\s*x?\s*(?P<scale>[-+.0-9e]+)\s*\)", re.IGNORECASE
)
_SUFFIXES = ("__min", "__max", "__step")


@lru_cache(maxsize=10_000)
def plain(name: str) -> str:
    """A name as the aliases have it: lower case, without the run's name that exports put before it."""
    return name.rsplit(" - ", 1)[-1].strip().lower()


def prefix(name: str) -> str:
    """The run's name in an exported column (`run - train/reward`); empty when there is none."""
    return name.rsplit(" - ", 1)[0] if " - " in name else ""


@lru_cache(maxsize=10_000)
def rate_scale(name: str) -> tuple[str, float]:
    """Plain name and unit of a column of rates: `actor/lr(1e-4)` counts in 1e-4."""
    found = _SCALED_RATE.fullmatch(plain(name))
    if found is None:
        return plain(name), 1.0
    try:
        return found["name"].strip(), float(found["scale"])
    except ValueError:
        return plain(name), 1.0


def is_evaluation(name: str) -> bool:
    """Whether a column is measured on the learner at that step, not on rollouts."""
    return bool(_EVALUATION.search(plain(name)))


def may_testify(name: str) -> bool:
    """Whether a column is a share of right answers, or a score of an evaluation: when it dies, the policy did."""
    text = plain(name)
    if _SPREAD.search(text) or text.endswith(_SUFFIXES):
        return False
    return bool(_ACCURACY.search(text) or (is_evaluation(text) and _SCORED.search(text)))


def looks_like_reward(name: str) -> bool:
    """Whether a column without a known name may be the reward."""
    text = plain(name)
    return "reward" in text and not _SPREAD.search(text) and not text.endswith(_SUFFIXES)


@lru_cache(maxsize=10_000)
def matches(alias: str, text: str) -> bool:
    """Whether a plain name is the alias, in which `*` stands for one part of the path."""
    if "*" not in alias:
        return alias == text
    parts, wanted = text.split("/"), alias.split("/")
    return len(parts) == len(wanted) and all(b in ("*", a) for a, b in zip(parts, wanted, strict=True))


_EXACT = {
    alias for names in (REWARD, STEPS, *FIELDS.values(), OWN, (UPDATE, ROLLOUT_STEP)) for alias in names
}
_PATTERNS = tuple(alias for alias in _EXACT if "*" in alias)


def is_wanted(name: str) -> bool:
    """Whether a column may be needed."""
    text = rate_scale(name)[0]
    if text.endswith(_SUFFIXES):
        return False
    known = text in _EXACT or any(matches(alias, text) for alias in _PATTERNS)
    return known or may_testify(text) or looks_like_reward(text)


def columns_of(aliases: Iterable[str], names: Iterable[str]) -> list[str]:
    """All of `names` that stand for one of `aliases`, in the aliases' order."""
    held = list(names)
    return list(
        dict.fromkeys(name for alias in aliases for name in held if matches(alias, rate_scale(name)[0]))
    )
