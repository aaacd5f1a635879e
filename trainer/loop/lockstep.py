"""The deterministic schedule: refresh the behaviour weights every S updates, draw the whole cycle, learn from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.checkpoint import Progress, load_checkpoint, save_checkpoint
from trainer.config import RunConfig, cumulative_learning_rate, learning_rate_at
from trainer.engines import make_engine
from trainer.files import disk_errors
from trainer.loop.evaluation import ROLLOUT, HeldOut, draw, score, stream
from trainer.loop.learner import Learner, Step, ratio_statistics
from trainer.loop.recorder import Recorder
from trainer.loop.rollouts import Rollouts
from trainer.metrics import FATAL, MetricsRow
from trainer.models import load_policy, save_policy
from trainer.tasks import load_task

OnRow = Callable[[Sequence[MetricsRow]], bool]
"""Called after every update with all rows so far; True ends the run. It must depend on the rows alone."""

NON_FINITE, STOPPED = "non_finite", "stopped"


@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    updates: int
    ended: str
    """`finished`, `stopped` (on request) or `non_finite`."""
    held_out_before: float | None
    held_out_after: float | None


def train(
    config: RunConfig,
    folder: Path,
    *,
    on_row: OnRow | None = None,
    device: str | None = None,
    policy_folder: Path | None = None,
) -> RunSummary:
    """Make the run of `config` in `folder`, or go on with the one that was interrupted there.

    The trained policy is saved to `policy_folder`, if given, as a Hugging Face model folder.

    Raises ConfigError for input that is wrong, EnvironmentFailedError when the disk is full or not writable.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        run = _Lockstep(config, folder, device or ("cuda" if torch.cuda.is_available() else "cpu"))
        try:
            summary = run.run(on_row or (lambda rows: False))
            if policy_folder is not None:
                save_policy(run.policy, policy_folder)
            return summary
        finally:
            run.recorder.close()


class _Lockstep:
    def __init__(self, config: RunConfig, folder: Path, device: str) -> None:
        torch.set_num_threads(config.cpu_threads)
        self.config, self.folder = config, folder
        self.task = load_task(config.task)
        self.policy = load_policy(config.model, device=device)
        self.learner = Learner(self.policy, config.trainer)
        self.held_out = HeldOut(self.policy, self.task, config)
        start = load_checkpoint(folder, self.learner, config=config.digest())
        self.start = start.update if start else 0
        self.held_out_before = start.held_out_before if start else None
        self.last_checkpoint = self.start
        self._initial: MetricsRow = {}
        self.recorder = Recorder(
            folder,
            update=self.start,
            metrics_offset=start.metrics_offset if start else 0,
            timings_offset=start.timings_offset if start else 0,
            record_ratios=config.record_ratios,
        )
        self.engine = make_engine(self.policy, config)

    def run(self, on_row: OnRow) -> RunSummary:
        """Cycles of S updates from the last checkpoint on."""
        if self.config.evaluate and self.start == 0:
            self.held_out_before = self.held_out.evaluate()
        if self.start == 0:
            reward, se = self.held_out.probe()
            self._initial = {"initial_reward": reward, "initial_se": se}
        ended: str | None = None
        update = self.start
        while ended is None and update < self.config.updates:
            self._synchronize(update)
            cycle = self._generate(update, min(self.config.sync_interval, self.config.updates - update))
            for start in range(0, len(cycle), self._batch_size):
                ended = self._update(update, cycle.rows(start, start + self._batch_size), on_row)
                update += 1
                if ended is not None:
                    break
        self.recorder.flush()
        self.engine.close()
        after = self.held_out.evaluate() if self.config.evaluate and ended != NON_FINITE else None
        return RunSummary(update, ended or "finished", self.held_out_before, after)

    @property
    def _batch_size(self) -> int:
        return self.config.trainer.group_size * self.config.trainer.prompts_per_update

    def _synchronize(self, update: int) -> None:
        if update - self.last_checkpoint >= self.config.checkpoint_every:
            metrics, timings = self.recorder.flush()
            progress = Progress(self.config.digest(), update, metrics, timings, self.held_out_before)
            save_checkpoint(self.folder, self.learner, progress)
            self.last_checkpoint = update
        with self.recorder.clock.phase("synchronize"):
            self.engine.update_weights(self.policy.model, update)

    def _generate(self, version: int, updates: int) -> Rollouts:
        """Scored rollouts for `updates` updates from the weights of `version`."""
        trainer = self.config.trainer
        rng = stream(self.config.seed, ROLLOUT, version)
        examples = draw(self.task, rng, updates * trainer.prompts_per_update)
        with self.recorder.clock.phase("generate"):
            rollouts = self.engine.generate(
                [example.prompt for example in examples],
                samples=trainer.group_size,
                seed=int(rng.integers(2**62)),
            )
        with self.recorder.clock.phase("score"):
            return score(self.task, self.policy, rollouts, examples)

    def _update(self, update: int, rollouts: Rollouts, on_row: OnRow) -> str | None:
        """One update, its row, its probe. Returns why the run ends here, if it does."""
        trainer = self.config.trainer
        rate = learning_rate_at(update, peak=self.config.learning_rate, warmup=trainer.warmup)
        with self.recorder.clock.phase("learn"):
            step = self.learner.update(rollouts, rate)
        row: MetricsRow = {**self._row(update, rate, rollouts, step), **self._initial}
        self._initial = {}
        finite = all(math.isfinite(row[name]) for name in FATAL)  # type: ignore[literal-required]
        if finite and ((update + 1) % self.config.probe.every == 0 or update + 1 == self.config.updates):
            with self.recorder.clock.phase("probe"):
                reward, se = self.held_out.probe()
            row.update({"probe_version": update + 1, "probe_reward": reward, "probe_se": se})
        self.recorder.update_done(row, rollouts, step.log_ratios, group_size=trainer.group_size)
        if not finite:
            return NON_FINITE
        return STOPPED if on_row(self.recorder.rows) else None

    def _row(self, update: int, rate: float, rollouts: Rollouts, step: Step) -> MetricsRow:
        trainer = self.config.trainer
        lag = update - rollouts.version
        row: MetricsRow = {
            "update": update,
            "version": int(rollouts.version.min()),
            "learning_rate": rate,
            "cumulative_lr": cumulative_learning_rate(
                update + 1, peak=self.config.learning_rate, warmup=trainer.warmup
            ),
            **_reward_fields(rollouts.reward, trainer.group_size, self.task.full_marks),  # type: ignore[typeddict-item]
            "loss": step.loss,
            "entropy": step.entropy,
            "grad_norm": step.grad_norm,
            "lag_mean": float(lag.float().mean()),
            "lag_max": int(lag.max()),
            **ratio_statistics(step.log_ratios, trainer.group_size),
            "cap_activation": step.cap_activation,
            "response_length": float(rollouts.mask.sum(dim=-1).float().mean()),
            "truncated": float(rollouts.truncated(self.policy.eos).float().mean()),
            "tokens_generated": int(rollouts.mask.sum()),
            "tokens_learned": int(rollouts.mask.sum()),
        }
        if step.grad_cosine is not None:
            row["grad_cosine"] = step.grad_cosine
        return row


def _reward_fields(reward: torch.Tensor, group_size: int, full_marks: float) -> dict[str, object]:
    """Mean, its standard error with prompts as clusters, and the histogram of `MetricsRow.pass_histogram`."""
    groups = reward.view(-1, group_size)
    means = groups.mean(dim=-1)
    spread = float(means.std()) if len(means) > 1 else float(groups.std())
    passed = (groups >= full_marks).float().mean(dim=-1)
    edges = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0 - 1e-6], device=passed.device)
    bins = torch.bucketize(passed, edges, right=False)
    return {
        "reward_mean": float(means.mean()),
        "reward_se": spread / math.sqrt(len(means)),
        "pass_histogram": torch.bincount(bins, minlength=6).tolist(),
        "signal": float((groups.amax(dim=-1) > groups.amin(dim=-1)).float().mean()),
    }
