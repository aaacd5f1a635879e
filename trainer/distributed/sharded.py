"""A learner whose weights, gradients and optimizer state are shared out among the processes of a team."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from trainer.algorithms.advantages import group_advantages
from trainer.algorithms.aggregation import aggregated
from trainer.config import TrainerConfig
from trainer.distributed.shards import local, whole
from trainer.distributed.team import STOP, Team, lost_connections
from trainer.errors import EnvironmentFailedError
from trainer.loop.learner import PREVIOUS, Learner, Step
from trainer.loop.logprobs import checkpointed_layers, response_logprobs
from trainer.loop.mismatch import micro_batches
from trainer.loop.rollouts import Rollouts, Weights
from trainer.models import Policy
from trainer.models.adapters import trained_parameters
from trainer.models.packing import packing


class ShardedLearner(Learner):
    """Every process has one, and calls its methods in the same order: the leader's calls announce themselves.

    Whole groups are dealt out; the gradients are summed, not averaged, and divided as those of one process are, so the
    update is that of one process but for the order of sums.
    """

    def __init__(self, policy: Policy, config: TrainerConfig, team: Team) -> None:
        """Cut the weights of `policy`, which every process has in full until now. Raises as `Learner` does."""
        self.team = team
        packing(policy.model)  # found out on whole weights, as all that `Learner` finds out
        super().__init__(policy, config)
        policy.share = self

    def _prepare(self) -> None:
        self._pass = sharded(self.policy.model, self.team, self.config.dtype)
        # FSDP takes the first module that runs for the outermost: that must be the pass.
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.team.device)
        with torch.no_grad(), lost_connections():
            self._pass(lambda model: model(input_ids=ids, use_cache=False).logits)
        self._pass.reshard()

    def logprobs(self, rollouts: Rollouts) -> Tensor:
        """As in one process. The layers are gathered one by one, what lies around them for the whole pass."""
        found: Tensor = self._pass(lambda model: response_logprobs(model, rollouts, self.config))
        return found

    def update(self, rollouts: Rollouts, learning_rate: float) -> Step:
        """See `Learner.update`; the answer is the same in every process."""
        self.team.announce("update", rollouts, learning_rate=learning_rate)
        with lost_connections():
            advantages = group_advantages(rollouts.reward, self.config)
            advantages, divisor = aggregated(advantages, rollouts.mask, self.config)
            tokens = int(rollouts.mask.sum())
            sums = torch.zeros(3 + len(rollouts), device=rollouts.reward.device)
            for rows, counts in self._own(len(rollouts)):
                # Who has nothing to do adds zero, so that the collectives of all meet.
                loss, entropy, activation, log_ratios = self._accumulate(
                    rollouts.rows(rows.start, rows.stop), advantages[rows] * counts, divisor, tokens
                )
                if counts:
                    sums[:3] += torch.stack([loss, entropy, activation * len(log_ratios)])
                    sums[3:][rows] = log_ratios
            loss, entropy, activation = self.team.total(sums)[:3].tolist()
            norm, cosine = self._gradient_norm_and_cosine()
            if math.isfinite(norm):
                self._apply(norm, learning_rate)
        self.optimizer.zero_grad(set_to_none=True)
        return Step(loss, entropy, norm, cosine, activation / len(rollouts), sums[3:].cpu())

    def score(self, rollouts: Rollouts) -> Tensor:
        """Logprobs under the present weights, in the micro-batches of `update`. [N, T], no gradient."""
        self.team.announce("score", rollouts)
        found = torch.zeros(rollouts.response.shape, device=rollouts.prompt.device)
        with torch.no_grad(), lost_connections():
            for rows, counts in self._own(len(rollouts)):
                logprobs = self.logprobs(rollouts.rows(rows.start, rows.stop))
                if counts:
                    found[rows] = logprobs
            self._pass.reshard()
            return self.team.total(found)

    def gathered(self, names: Sequence[str]) -> Weights:
        """See `trainer.models.Share`."""
        return _Gathered(names, lambda name: self.gather(f"model.{name}"))

    def gather(self, name: str) -> Tensor:
        """One tensor in full: those of `Learner.tensor`, and `previous_gradient.NAME`."""
        self.team.announce("gather", name=name)
        with lost_connections():
            return whole(self.tensor(name))

    def tensor(self, name: str) -> Tensor:
        """See `Learner.tensor`; also the last gradient, of each parameter by itself."""
        own = name.removeprefix(f"{PREVIOUS}.")
        return super().tensor(name) if own == name else self._gradients()[own]

    def parts(self, name: str) -> Iterator[Tensor]:
        """See `Learner.parts`."""
        parameters = trained_parameters(self.policy.model)
        names = [f"{PREVIOUS}.{own}" for own in parameters] if name == PREVIOUS else [name]
        return (self.gather(part) for part in names)

    @property
    def gradient_size(self) -> int:
        """See `Learner.gradient_size`."""
        return sum(parameter.numel() for parameter in self.parameters)

    def close(self) -> None:
        """Send the others home, if they are still there."""
        with suppress(EnvironmentFailedError):
            self.team.announce(STOP)

    def follow(self) -> None:
        """Do what the leader announces, until it stops."""
        methods: Mapping[str, Callable[..., Any]] = {
            name: getattr(self, name) for name in ("update", "score", "gather")
        }
        while (order := self.team.await_order()).method != STOP:
            given = () if order.rollouts is None else (order.rollouts,)
            methods[order.method](*given, **order.arguments)

    def _own(self, trajectories: int) -> Iterator[tuple[slice, bool]]:
        """Rows that this process reads, and whether they count: where others have more, the first ones do not."""
        team, parts = self.team, list(micro_batches(trajectories, self.config, processes=self.team.size))
        for first in range(0, len(parts), team.size):
            mine = first + team.rank
            yield slice(*parts[mine if mine < len(parts) else 0]), mine < len(parts)

    def _gradient_norm_and_cosine(self) -> tuple[float, float | None]:
        zeros = (torch.zeros_like(local(p)) if p.grad is None else local(p.grad) for p in self.parameters)
        gradient = torch.cat([share.flatten() for share in zeros])
        previous, self.previous_gradient = self.previous_gradient, gradient
        before = torch.zeros_like(gradient) if previous is None else previous
        products = torch.stack([gradient @ gradient, gradient @ before, before @ before])
        square, product, square_before = self.team.total(products).double().tolist()
        norm = math.sqrt(square) if square >= 0 else math.nan
        if previous is None:
            return norm, None
        scale = norm * math.sqrt(square_before)
        return norm, product / scale if scale > 0 else 0.0

    def _known_gradient(self) -> Tensor:
        if self.previous_gradient is None:
            raise KeyError(PREVIOUS)
        return self.previous_gradient

    def _gradients(self) -> dict[str, Tensor]:
        """The last gradient by parameters."""
        parameters: dict[str, Any] = dict(trained_parameters(self.policy.model))
        shares = self._known_gradient().split([local(p).numel() for p in parameters.values()])
        return {
            name: DTensor.from_local(
                share.view(local(p).shape),
                p.device_mesh,
                p.placements,
                run_check=False,
                shape=p.shape,
                stride=p.stride(),
            )
            for (name, p), share in zip(parameters.items(), shares, strict=True)
        }


class _Pass(torch.nn.Module):
    """One pass through the model, whatever it computes: what is outside the layers is gathered for its time."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, run: Callable[[Any], Tensor]) -> Tensor:
        """`run` on the model, whose parameters are whole while its layers run."""
        return run(self.model)


class _Gathered(Mapping[str, Tensor]):
    """Tensors by name, each made when it is asked for."""

    def __init__(self, names: Sequence[str], gather: Callable[[str], Tensor]) -> None:
        self._names, self._gather = names, gather

    def __getitem__(self, name: str) -> Tensor:
        return self._gather(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def sharded(model: Any, team: Team, dtype: str) -> Any:
    """Cut the layers one by one, then what is left. On a GPU bfloat16 layers travel as such; sums stay in float32."""
    module, narrow = _Pass(model), dtype == "bfloat16" and team.device.startswith("cuda")
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if narrow else None, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    for layer in checkpointed_layers(module.model):
        fully_shard(layer, mesh=team.mesh, mp_policy=policy, reshard_after_forward=True)
    fully_shard(module, mesh=team.mesh)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)  # sums, not means
            part.set_force_sum_reduction_for_comms(True)  # gloo has no other
    return module
