"""What both schedules share: the learner with its checkpoints, the updates with their rows, the held-out probes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainer.checkpoint import Progress, load_checkpoint, save_checkpoint
from trainer.config import RunConfig, cumulative_learning_rate, learning_rate_at
from trainer.engines.protocol import Engine
from trainer.errors import ConfigError, NonFiniteError
from trainer.loop.allocator import keep_freed_memory
from trainer.loop.evaluation import HeldOut
from trainer.loop.group_probe import group_probe
from trainer.loop.learner import Learner
from trainer.loop.recorder import TIMINGS, Recorder, read_rows
from trainer.loop.rollouts import Rollouts, Weights
from trainer.loop.rows import metrics_row
from trainer.loop.staleness import staleness_bias
from trainer.machine import free_memory
from trainer.metrics import FATAL, MetricsRow
from trainer.models import load_policy, model_digest
from trainer.models.memory import Gpus, check_memory
from trainer.summary import RunSummary
from trainer.tasks import load_task

if TYPE_CHECKING:
    from trainer.distributed.team import Team

OnRow = Callable[[Sequence[MetricsRow]], bool]
"""Called after every update with all rows so far; True ends the run. It must depend on the rows alone."""

NON_FINITE, STOPPED, FINISHED = "non_finite", "stopped", "finished"


class Session:
    """A run in its folder, as far as its last checkpoint."""

    def __init__(
        self, config: RunConfig, folder: Path, device: str, on_row: OnRow, team: Team | None = None
    ) -> None:
        torch.set_num_threads(config.cpu_threads)
        if team is None:  # the processes of a team give it back, see `meeting`
            keep_freed_memory()
        self.config, self.folder, self.device, self.on_row = config, folder, device, on_row
        self.task = load_task(config.task)
        available, size = free_memory(device)
        gpus = None if size is None else Gpus(size, torch.cuda.device_count())
        self.processes = processes = 1 if team is None else team.size
        check_memory(config, available=available, gpus=gpus, processes=processes)
        check_team(config, processes, gpus)
        self.learner, start = restored_learner(config, folder, device, team)
        self.policy = self.learner.policy
        self.held_out = HeldOut(self.policy, self.task, config)
        self._base = base_digest(config)
        self.start = start.update if start else 0
        self._held_out_before = start.held_out_before if start else None
        self._last_checkpoint = self.start
        self._initial: MetricsRow = {}
        self.discarded: list[Rollouts] = []
        self.recorder = Recorder(
            config,
            folder,
            update=self.start,
            metrics_offset=start.metrics_offset if start else 0,
            timings_offset=start.timings_offset if start else 0,
        )

    @property
    def weights(self) -> Weights:
        """The learner's present weights, as far as they are trained, not a copy."""
        return self.policy.weights

    @property
    def batch_size(self) -> int:
        """Trajectories of an update, G x P."""
        return self.config.trainer.group_size * self.config.trainer.prompts_per_update

    def begin(self) -> None:
        """Score the policy that the run starts from; a resumed run has done so."""
        if self.start > 0:
            return
        try:
            if self.config.evaluate:
                self._held_out_before = self.held_out.evaluate()
            reward, se = self.held_out.probe()
        except NonFiniteError as error:
            dtype = self.config.trainer.dtype
            raise ConfigError(
                f"model.path = {self.config.model.path!r}: {error} before any training, in trainer.dtype = {dtype!r}; "
                "use another checkpoint or precision"
            ) from error
        self._initial = {"initial_reward": reward, "initial_se": se}

    def checkpoint_when_due(self, update: int) -> None:
        """Write a checkpoint before `update` when the last one is `checkpoint_every` updates old."""
        if update - self._last_checkpoint >= self.config.checkpoint_every:
            self.checkpoint(update)

    def checkpoint(self, update: int) -> None:
        """Write a checkpoint before `update`."""
        metrics, timings = self.recorder.flush()
        progress = Progress(self.config.digest(), update, metrics, timings, self._held_out_before, self._base)
        save_checkpoint(self.folder, self.learner, progress, keep=self.config.checkpoints_kept)
        self._last_checkpoint = update

    def update(self, update: int, rollouts: Rollouts, measured: MetricsRow | None = None) -> str | None:
        """One update, its row, its probes. Returns why the run ends here, if it does.

        `measured`: fields that were measured on these rollouts before.
        """
        trainer = self.config.trainer
        bias = self._staleness(update, rollouts)
        rate = learning_rate_at(update, peak=self.config.learning_rate, warmup=trainer.warmup)
        with self.recorder.clock.phase("learn"):
            step = self.learner.update(rollouts, rate)
        row = metrics_row(
            self.config,
            rollouts,
            step,
            update=update,
            rate=rate,
            full_marks=self.task.full_marks,
            eos=self.policy.eos,
        )
        row.update({**self._initial, **(measured or {}), **bias})
        self._initial = {}
        if _finite(row) and (
            (update + 1) % self.config.probe.every == 0 or update + 1 == self.config.updates
        ):
            with self.recorder.clock.phase("probe"):
                reward, se = self._probe()
            row.update({"probe_version": update + 1, "probe_reward": reward, "probe_se": se})
        self.recorder.update_done(row, rollouts, step.log_ratios, group_size=trainer.group_size)
        if not _finite(row):
            return NON_FINITE
        return STOPPED if self.on_row(self.recorder.rows) else None

    def undrawable(self, update: int, *, version: int) -> str:
        """Row of an update for which nothing could be sampled from the weights of `version`. Its reward is NaN.

        Returns how the run ends.
        """
        warmup, peak = self.config.trainer.warmup, self.config.learning_rate
        row: MetricsRow = {
            "update": update,
            "version": version,
            "learning_rate": learning_rate_at(update, peak=peak, warmup=warmup),
            "cumulative_lr": cumulative_learning_rate(update + 1, peak=peak, warmup=warmup),
            "reward_mean": math.nan,
            "reward_se": math.nan,
        }
        self.recorder.write(row)
        return NON_FINITE

    def _probe(self) -> tuple[float, float]:
        try:
            return self.held_out.probe()
        except NonFiniteError:
            return math.nan, math.nan

    def _staleness(self, update: int, rollouts: Rollouts) -> MetricsRow:
        """The staleness bias of the batch before `update`, when it is due."""
        every = self.config.probe.staleness_every
        if not every or update % every:
            return {}
        with self.recorder.clock.phase("probe"):
            return staleness_bias(self.policy, rollouts, self.config.trainer)

    def probe_groups(self, engine: Engine, update: int) -> None:
        """Record groups larger than those of the run, drawn by `engine` before `update`."""
        with self.recorder.clock.phase("probe"):
            try:
                group_probe(engine, self.policy, self.task, self.config, self.folder, update=update)
            except NonFiniteError:  # a policy that broke down ends the run at its next update
                return

    def finish(self, updates: int, ended: str) -> RunSummary:
        """Close the books after `updates` updates."""
        self.recorder.flush()
        after = self.held_out.evaluate() if self.config.evaluate and ended != NON_FINITE else None
        group_size, unused = self.config.trainer.group_size, self.discarded
        passed = [(rollouts.reward >= self.task.full_marks).float() for rollouts in unused]
        return RunSummary(
            updates=updates,
            ended=ended,
            held_out_before=self._held_out_before,
            held_out_after=after,
            lag_bound=self.config.lag_bound,
            lag_reached=max((row.get("lag_max", 0) for row in self.recorder.rows), default=0),
            paced=sum("paced" in row for row in read_rows(self.folder / TIMINGS)),
            discarded_groups=sum(map(len, unused)) // group_size,
            discarded_length=_mean([rollouts.mask.sum(dim=-1).float() for rollouts in unused]),
            discarded_pass_rate=_mean(passed),
        )


def check_team(config: RunConfig, processes: int, gpus: Gpus | None) -> None:
    """Raises ConfigError for what several processes cannot do."""
    if processes == 1:
        return
    if config.probe.staleness_every:
        raise ConfigError(
            f"probe.staleness_every = {config.probe.staleness_every}: several processes cannot measure the staleness "
            "bias yet; set it to 0, or train in one process"
        )
    if config.engine == "vllm" and config.schedule == "lockstep":
        raise ConfigError(
            "engine = 'vllm' would take the process group of several processes for its own: set "
            "engine = 'vllm-server'"
        )
    wide = config.vllm.tensor_parallel
    if gpus is not None and config.engine == "vllm-server" and processes + wide > gpus.count:
        raise ConfigError(
            f"{processes} processes of the learner and vllm.tensor_parallel = {wide} need {processes + wide} GPUs, and "
            f"{gpus.count} are visible: use fewer of either"
        )


def restored_learner(
    config: RunConfig, folder: Path, device: str, team: Team | None
) -> tuple[Learner, Progress | None]:
    """The learner as the newest checkpoint of `folder` left it, or new; one of a team's holds its share alone."""
    policy = load_policy(config.model, device=device, lora=config.trainer.lora, seed=config.seed)
    learner: Learner
    if team is None:
        learner = Learner(policy, config.trainer)
    else:
        from trainer.distributed.sharded import ShardedLearner

        learner = ShardedLearner(policy, config.trainer, team)
    return learner, load_checkpoint(folder, learner, config=config.digest(), base=base_digest(config))


def base_digest(config: RunConfig) -> str | None:
    """Digest of the weights that adapters are trained on; None where all weights are trained."""
    return None if config.trainer.lora is None else model_digest(config.model)


def _mean(parts: Sequence[Tensor]) -> float | None:
    return float(torch.cat(list(parts)).mean()) if parts else None


def _finite(row: MetricsRow) -> bool:
    return all(math.isfinite(row.get(name, 0.0)) for name in FATAL)  # type: ignore[arg-type]
