"""Rollout engines by name, behind one small protocol."""

from __future__ import annotations

from collections.abc import Callable

from trainer.config import RunConfig
from trainer.engines.hf import HfEngine
from trainer.engines.protocol import Engine
from trainer.models import Policy


def _hf(policy: Policy, config: RunConfig, share_weights: bool) -> Engine:
    trainer = config.trainer
    return HfEngine(
        policy,
        response_limit=trainer.response_limit,
        temperature=trainer.temperature,
        dtype=trainer.dtype,
        share_weights=share_weights,
    )


def _vllm(policy: Policy, config: RunConfig, share_weights: bool) -> Engine:
    from trainer.engines.vllm.local import VllmEngine

    return VllmEngine(policy, config)


def _vllm_server(policy: Policy, config: RunConfig, share_weights: bool) -> Engine:
    from trainer.engines.vllm.server import VllmServerEngine

    return VllmServerEngine(policy, config)


ENGINES: dict[str, Callable[[Policy, RunConfig, bool], Engine]] = {
    "hf": _hf,
    "vllm": _vllm,
    "vllm-server": _vllm_server,
}


def make_engine(policy: Policy, config: RunConfig, *, share_weights: bool = False) -> Engine:
    """The engine of `config`. `share_weights` samples from the learner's own weights, for probes.

    vLLM always holds a copy, and a second one only for probes would cost more than it saves: those are sampled by
    transformers, whatever the engine. Raises ConfigError when the engine cannot be started.
    """
    return ENGINES["hf" if share_weights else config.engine](policy, config, share_weights)


__all__ = ["ENGINES", "Engine", "make_engine"]
