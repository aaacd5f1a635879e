"""vLLM in a process of its own: its OpenAI-compatible server, token ids in and token ids out."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.config import RunConfig
from trainer.engines.protocol import Refresh
from trainer.engines.tokens import Completion, encode, pack
from trainer.engines.vllm.process import ServerProcess, new_log, private_folder, require_free_port
from trainer.engines.vllm.settings import (
    check_lengths,
    engine_arguments,
    environment,
    max_length,
    prompt_seeds,
    require_vllm,
    sampling_parameters,
    versions_of,
)
from trainer.errors import ConfigError, TrainerError
from trainer.loop.rollouts import Rollouts, Weights
from trainer.models import Policy

LOOK_EVERY = 0.05
"""Seconds between two looks for new weights and for a server that is gone."""
NOT_A_NUMBER = -9999.0
"""What the server writes for a logprob that is none, or is minus infinity."""
MAX_CONNECTIONS = 512


@dataclass(frozen=True)
class Placement:
    """Where the server runs and how weights get there."""

    transfer: str
    """`file`, `ipc` or `nccl`."""
    gpu: str | None
    """What `CUDA_VISIBLE_DEVICES` is for the server; None: a CPU."""
    shared: bool
    """Whether the learner works on the same GPU."""
    sender: int | None
    """Number of the visible GPU that weights are sent from; None: the CPU."""


def place(config: RunConfig, *, own: int | None, visible: Sequence[str]) -> Placement:
    """The learner keeps the first of the `visible` GPUs, the server takes the last, `vllm.tensor_parallel` of them.

    `own` is the number of this process's GPU, None on a CPU: the learner's, or that of the rollout worker, which keeps
    the second. Weights are sent from it, but NCCL needs two GPUs: where it is the server's, from the learner's.

    Raises ConfigError when `vllm.transfer` cannot work there, or no GPU would be left for the learner.
    """
    wide = config.vllm.tensor_parallel
    if wide > 1 and len(visible) <= wide:
        raise ConfigError(
            f"vllm.tensor_parallel = {wide} takes that many GPUs beside the learner's, and {len(visible)} are visible: "
            "lower it"
        )
    shared = own is not None and len(visible) == 1
    fitting = "file" if own is None else "ipc" if shared else "nccl"
    transfer = fitting if config.vllm.transfer == "auto" else config.vllm.transfer
    if transfer not in ("file", fitting):
        raise ConfigError(
            f"vllm.transfer = {transfer!r} does not fit: ipc needs the learner and vLLM on one GPU, nccl on two; "
            f"here it is {fitting!r}, or leave it 'auto'"
        )
    if transfer == "ipc" and config.vllm.port is not None:
        raise ConfigError(
            f"vllm.port = {config.vllm.port}: with vllm.transfer = 'ipc' any user of this machine could run code "
            "through it; leave vllm.port out, then a private Unix socket is used"
        )
    sender = own if own is None or own + wide < len(visible) else 0
    return Placement(transfer, ",".join(visible[-wide:]) if visible else None, shared, sender)


class VllmServerEngine:
    """Starts the server, and ends it with this process, however this process ends."""

    def __init__(self, policy: Policy, config: RunConfig) -> None:
        """Start with the policy's present weights.

        Raises ConfigError when vLLM is missing, `vllm.port` is taken or the limits do not fit the model;
        EnvironmentFailedError when the server does not come up.
        """
        require_vllm("vllm-server")
        self._policy, self._config = policy, config
        self._longest = max_length(policy, config)
        if config.vllm.port is not None:
            require_free_port(config.vllm.port)
        # A CPU has no number, and "cuda" the one that it stands for.
        own = next(policy.model.parameters()).device.index
        self._place = place(config, own=own, visible=visible_gpus())
        self._sleeps = self._place.shared and config.vllm.sleep and config.schedule == "lockstep"
        self._start()
        self.version = 0
        self.update_weights(policy.weights, 0)

    def generate(
        self, prompts: Sequence[str], *, samples: int, seed: int, refresh: Refresh | None = None
    ) -> Rollouts:
        """See `Engine.generate`.

        Requests are batched as they arrive, and sums depend on the batch in the last bit: the same seed gives the
        same tokens except where two were a rounding error apart.

        Raises ConfigError when a prompt is empty or too long, EnvironmentFailedError when the server dies, finishes
        no request for `overlap.patience` seconds, or does not answer a command for `vllm.start_timeout`.
        """
        encoded = encode(self._policy, prompts)
        limit = self._config.trainer.response_limit
        check_lengths(encoded, limit=limit, longest=self._longest)
        if self._sleeps:
            self._client.post("/wake_up")
        completions = self._complete(encoded, samples, seed, refresh)
        if self._sleeps:
            self._client.post("/sleep", level=1)
        device = next(self._policy.model.parameters()).device
        return pack(encoded, completions, pad=self._policy.pad, limit=limit, device=device)

    def update_weights(self, weights: Weights, version: int) -> None:
        """Pause when all that runs has finished, hand the weights over, drop what was cached, go on."""
        self._push(weights, version, mode="wait")

    def close(self) -> None:
        """End the server."""
        with suppress(TrainerError):
            self._sender.close()
        self._client.close()
        self._process.close()

    def _start(self) -> None:
        from trainer.engines.vllm.client import Client

        folder, port = private_folder(), self._config.vllm.port
        socket = None if port else folder / "socket"
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *self._flags(socket)]
        self._process = ServerProcess(folder, new_log(), command, self._variables())
        seconds = self._config.vllm.start_timeout
        self._client = Client(socket=socket, port=port, seconds=seconds, failed=self._process.failed)
        try:
            self._process.wait_until(self._client.healthy, seconds=seconds)
            self._sender = self._make_sender(folder)
        except BaseException:
            self._process.close(keep_log=True)
            raise

    def _flags(self, socket: Path | None) -> list[str]:
        arguments = engine_arguments(
            self._policy, self._config, gpu=self._place.gpu is not None, sleep=self._sleeps
        )
        arguments |= {
            "weight_transfer_config": json.dumps({"backend": self._place.transfer}),
            "enable_scale_out": True,
            "disable_log_stats": True,
            "disable_uvicorn_access_log": True,
        }
        if self._place.transfer == "file":
            arguments["worker_extension_cls"] = "trainer.engines.vllm.transfer.Extension"
        address: dict[str, Any] = (
            {"uds": socket} if socket else {"host": "127.0.0.1", "port": self._config.vllm.port}
        )
        return as_flags(arguments | address)

    def _variables(self) -> dict[str, str]:
        gpu = self._place.gpu
        package = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        variables = environment(self._config, gpu=gpu is not None, log_level="INFO") | {
            "VLLM_SERVER_DEV_MODE": "1",  # the routes of weight updates, on a socket or port of our own
            "PYTHONPATH": path,
            "PYTHONSAFEPATH": "1",  # a module in the current folder must not stand for one of ours
        }
        if gpu is None:
            return variables | {"TORCHDYNAMO_DISABLE": "1"}
        if self._place.transfer == "ipc":
            # CUDA's handles travel pickled; only this user can reach the socket.
            variables["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
        return variables | {"CUDA_VISIBLE_DEVICES": gpu}

    def _make_sender(self, folder: Path) -> Any:
        from trainer.engines.vllm.send import FileSender, MappingSource, NativeSender

        dtype = getattr(torch, self._config.trainer.dtype)
        if self._place.transfer == "file" or self._place.sender is None:
            return FileSender(self._client, folder, dtype)
        source = MappingSource(self._policy.merged(), dtype, torch.device("cuda", self._place.sender))
        wide = self._config.vllm.tensor_parallel
        return NativeSender(self._client, self._place.transfer, source, receivers=wide)

    def _push(self, weights: Weights, version: int, *, mode: str) -> None:
        if self._sleeps and mode == "wait":
            self._client.post("/wake_up", tags="weights")
        self._client.post("/pause", mode=mode, clear_cache=True)
        self._client.version = version
        self._sender.send(self._policy.merged(weights))
        self._client.post("/resume")
        self.version = version

    def _complete(
        self, encoded: Sequence[list[int]], samples: int, seed: int, refresh: Refresh | None
    ) -> list[Completion]:
        """All completions in order. Asks for new weights while requests run."""
        most = self._config.vllm.max_sequences
        bodies = [
            self._body(ids, samples=min(most, samples - first), seed=own + first)
            for ids, own in zip(encoded, prompt_seeds(seed, len(encoded)), strict=True)
            for first in range(0, samples, most)
        ]
        # Twice as many as the server decodes together, so that it never waits for one.
        threads = min(len(bodies), MAX_CONNECTIONS, 2 * math.ceil(most / min(samples, most)))
        pool = ThreadPoolExecutor(threads)
        try:
            requests = [pool.submit(self._client.generate, body) for body in bodies]
            self._attend(requests, refresh)
            return [_completion(choice) for request in requests for choice in _choices(request)]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _attend(self, requests: Sequence[Future[Any]], refresh: Refresh | None) -> None:
        """Wait for all, raise what one raises, notice a server that is gone or hangs, take new weights."""
        pending, patience = set(requests), self._config.overlap.patience
        progress = time.monotonic()
        while pending:
            done, pending = wait(pending, LOOK_EVERY, FIRST_EXCEPTION)
            if done:
                progress = time.monotonic()
            elif time.monotonic() - progress > patience:
                how = f"finished no request within overlap.patience = {patience:g} s (raise it if they take longer)"
                raise self._process.failed(how)
            for request in done:
                request.result()
            self._process.check()
            new = refresh() if refresh is not None and pending else None
            if new is not None:
                self._push(*new, mode="keep")

    def _body(self, ids: list[int], *, samples: int, seed: int) -> dict[str, Any]:
        parameters = sampling_parameters(self._policy, self._config, samples=samples, seed=seed)
        return {"token_ids": ids, "sampling_params": parameters}


def as_flags(arguments: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as vLLM's command line wants them."""
    flags: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return flags


def visible_gpus() -> list[str]:
    """Names of this process's GPUs, as `CUDA_VISIBLE_DEVICES` has them."""
    if not torch.cuda.is_available():
        return []
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named or [str(number) for number in range(torch.cuda.device_count())]


def _choices(request: Future[Any]) -> list[dict[str, Any]]:
    return sorted(request.result()["choices"], key=lambda choice: int(choice["index"]))


def _completion(choice: Mapping[str, Any]) -> Completion:
    tokens = choice["token_ids"]
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return Completion(
        tokens,
        [math.nan if logprob <= NOT_A_NUMBER else logprob for logprob in logprobs],
        versions_of(choice["weight_versions"], len(tokens)),
    )
