"""Weight transfer to vLLM's server: the trainer's side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

from trainer.engines.vllm.client import Client
from trainer.engines.vllm.process import free_port
from trainer.loop.rollouts import Weights


class Sender(Protocol):
    def send(self, weights: Weights) -> None:
        """Hand `weights` to the server, which must be paused, and wait until it has loaded them."""

    def close(self) -> None:
        """Free what the transfer holds."""


class FileSender:
    """Through a safetensors file in shared memory, from and to any device."""

    def __init__(self, client: Client, folder: Path, dtype: torch.dtype) -> None:
        self._client, self._path, self._dtype = client, folder / "weights.safetensors", dtype

    def send(self, weights: Weights) -> None:
        """See `Sender.send`; the file is gone afterwards."""
        cast = {name: weight.detach().to("cpu", self._dtype).contiguous() for name, weight in weights.items()}
        try:
            save_file(cast, self._path)
            self._client.start_weight_update()
            self._client.update_weights({"path": str(self._path)})
            self._client.finish_weight_update()
        finally:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """The folder goes with the server."""


class MappingSource(WeightSource):
    """Weights by name, in their order, as vLLM's transfer wants to read them: on one GPU, in the engine's dtype."""

    def __init__(self, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        self.weights, self.device, self._dtype = weights, device, dtype

    def metadata(self) -> list[ParamMeta]:
        """What iteration yields, without moving anything."""
        return [ParamMeta(name, self._dtype, tuple(weight.shape)) for name, weight in self.weights.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, weight in self.weights.items():
            yield name, weight.detach().to(self.device, self._dtype).contiguous()


class NativeSender:
    """By vLLM's own `ipc` (one GPU, two processes) or `nccl` (other GPUs); this process is the only trainer rank.

    vLLM takes the process's current GPU for that of the sender: here it is the source's while vLLM is called.
    """

    def __init__(self, client: Client, backend: str, source: MappingSource, *, receivers: int = 1) -> None:
        """Meets the server's `receivers` GPUs, which wait for it, and sends nothing yet."""
        self._source = source
        with torch.cuda.device(source.device):
            self._engine = WeightTransferTrainerFactory.trainer_init(
                _init_info(backend, receivers), client=client, source=source
            )

    def send(self, weights: Weights) -> None:
        """See `Sender.send`."""
        self._source.weights = weights
        with torch.cuda.device(self._source.device):
            self._engine.send_weights()

    def close(self) -> None:
        """Leave the process group."""
        with torch.cuda.device(self._source.device):
            self._engine.shutdown()


def _init_info(backend: str, receivers: int) -> Any:
    if backend == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        return IPCTrainerInitInfo(rank=0)
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    return NCCLTrainerInitInfo(
        master_address="127.0.0.1", master_port=free_port(), world_size=1 + receivers, rank=0
    )
