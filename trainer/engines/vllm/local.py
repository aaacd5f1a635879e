"""vLLM in the process that generates: the learner's own (`lockstep`) or the rollout worker's (`overlap`)."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from trainer import processes
from trainer.config import RunConfig
from trainer.engines.protocol import Refresh
from trainer.engines.tokens import Completion, encode, pack
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
from trainer.engines.vllm.tied import repack_tied_head
from trainer.errors import ConfigError
from trainer.loop.rollouts import Rollouts, Weights
from trainer.models import Policy

FOR_ITS_CHILDREN = ("LD_PRELOAD", "LD_LIBRARY_PATH")
"""Variables that vLLM sets in its own process for children that it might start."""


class VllmEngine:
    """Steps vLLM's engine by hand, so that new weights may come between two decoding steps."""

    def __init__(self, policy: Policy, config: RunConfig) -> None:
        """Start vLLM with the policy's present weights, on the policy's GPU if there is one.

        On a GPU that the learner uses in turns with it (`lockstep`), vLLM sleeps while the learner works.

        Raises ConfigError when vLLM is missing or cannot run this model with these settings.
        """
        require_vllm("vllm")
        self._policy, self._config = policy, config
        self._device = next(policy.model.parameters()).device
        self._gpu = torch.cuda.is_available()
        self._sleeps = self._gpu and config.vllm.sleep and config.schedule == "lockstep"
        self._longest = max_length(policy, config)
        self._llm = self._start()
        self.update_weights(policy.weights, 0)

    def generate(
        self, prompts: Sequence[str], *, samples: int, seed: int, refresh: Refresh | None = None
    ) -> Rollouts:
        """See `Engine.generate`. Raises ConfigError when a prompt is empty or too long."""
        encoded = encode(self._policy, prompts)
        limit = self._config.trainer.response_limit
        check_lengths(encoded, limit=limit, longest=self._longest)
        if self._sleeps:
            self._llm.wake_up()
        with self._uncompiled():
            try:
                self._request(encoded, samples, seed)
                finished = self._run(refresh)
            except BaseException:
                self._llm.llm_engine.abort_request([str(number) for number in range(len(encoded))])
                raise
        if self._sleeps:
            self._llm.sleep(level=1)
        return pack(
            encoded,
            [_completion(output) for prompt in range(len(encoded)) for output in finished[prompt]],
            pad=self._policy.pad,
            limit=limit,
            device=self._device,
        )

    def update_weights(self, weights: Weights, version: int) -> None:
        """Reload in place, whatever device the weights lie on; what was cached with the old ones is dropped."""
        if self._sleeps:
            self._llm.wake_up(tags=["weights"])
        with torch.no_grad():
            plain = self._policy.merged(weights)
            named = ((name, weight.detach()) for name, weight in plain.items())
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named})
            if not self._gpu:
                self._llm.apply_model(repack_tied_head)
        engine = self._llm.llm_engine
        engine.set_weight_version(str(version))
        engine.reset_prefix_cache(reset_running_requests=True)
        self.version = version

    def close(self) -> None:
        """Free the weights and the cache; another engine may be started afterwards."""
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm

    def _start(self) -> Any:
        arguments = engine_arguments(self._policy, self._config, gpu=self._gpu, sleep=self._sleeps)
        arguments |= {
            "disable_log_stats": True,
            "async_scheduling": False,  # else a step in flight would be labelled with a version that it has not seen
        }
        if self._gpu:
            arguments["device_ids"] = [self._device.index or 0]
        variables = environment(self._config, gpu=self._gpu, log_level="ERROR")
        variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        with processes.environment(variables, undo=FOR_ITS_CHILDREN), _process_state(), self._uncompiled():
            try:
                from vllm import LLM, SamplingParams

                llm = LLM(**arguments)
                # Some kernels say only when they are called that they do not know the model's shape.
                one = SamplingParams(max_tokens=1, detokenize=False)
                llm.generate([{"prompt_token_ids": [self._policy.eos]}], one, use_tqdm=False)
                return llm
            except (
                ValueError,
                RuntimeError,
                AssertionError,
                NotImplementedError,
                torch.OutOfMemoryError,
            ) as error:
                raise ConfigError(
                    f"engine = 'vllm' cannot run model.path = {self._config.model.path!r}: {error}\n"
                    "If memory is short, lower trainer.prompt_limit, trainer.response_limit or vllm.max_sequences, "
                    "or change vllm.memory_share (GPU) or vllm.cache_gib (CPU); if vLLM does not know the model, "
                    "use engine = 'hf'."
                ) from error

    def _request(self, encoded: Sequence[list[int]], samples: int, seed: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        for number, (ids, own) in enumerate(zip(encoded, prompt_seeds(seed, len(encoded)), strict=True)):
            parameters = SamplingParams(
                **sampling_parameters(self._policy, self._config, samples=samples, seed=own),
                flat_logprobs=True,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            self._llm.llm_engine.add_request(str(number), {"prompt_token_ids": ids}, parameters)

    def _run(self, refresh: Refresh | None) -> dict[int, list[Any]]:
        """Step until every request is finished. Returns the outputs of each prompt by its number."""
        engine = self._llm.llm_engine
        finished: dict[int, list[Any]] = {}
        while engine.has_unfinished_requests():
            for request in engine.step():
                finished[int(request.request_id)] = request.outputs
            new = refresh() if refresh is not None and engine.has_unfinished_requests() else None
            if new is not None:
                self.update_weights(*new)
        return finished

    def _uncompiled(self) -> AbstractContextManager[object]:
        """On a CPU, run vLLM's small compiled functions as they are: compiling them takes half a minute."""
        import torch._dynamo

        return nullcontext() if self._gpu else torch._dynamo.config.patch(disable=True)


def _completion(output: Any) -> Completion:
    tokens = list(output.token_ids)
    return Completion(tokens, output.logprobs.logprobs, versions_of(output.weight_versions, len(tokens)))


@contextmanager
def _process_state() -> Iterator[None]:
    """Keep what vLLM changes in its process: seeds, number of threads, and on a CPU the function that sets it."""
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # those of vLLM's own calls
        python, numpy = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_num_threads = set_threads
            torch.set_num_threads(threads)
