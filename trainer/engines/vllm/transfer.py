"""Weight transfer through a file in shared memory: the worker's side, imported by vLLM's workers.

vLLM's own backends need CUDA on both sides; this one needs a folder that both processes see. A worker registers it by
importing `Extension`, which the server is told of by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from trainer.engines.vllm.tied import repack_tied_head

BACKEND = "file"


@dataclass
class FileInitInfo(WeightTransferInitInfo):
    """Nothing to agree on beforehand."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):
    path: str
    """A safetensors file with all parameters by their Hugging Face names."""


class FileTransfer(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):
    """Reloads the whole model, layer by layer, from a file."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        """Prepare the layers for weights in checkpoint format."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As in the base class, which asks for an accelerator even where there is none."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Load the file into the model."""
        self.model.load_weights(load_file(update_info.path).items())

    def finish_weight_update(self) -> None:
        """Put the weights into the form that the kernels read."""
        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            repack_tied_head(self.model)

    def shutdown(self) -> None:
        """Nothing is held."""


class Extension:
    """What `worker_extension_cls` names; importing it has registered the backend."""


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, FileTransfer)
