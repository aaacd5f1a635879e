"""Low-rank adapters beside the linear layers of a frozen model, made by peft inside the transformers model itself.

The model stays a plain transformers model: only its linear layers are replaced, by layers that hold the frozen one as
`base_layer` and A [rank, in] and B [out, rank] beside it. Source: LoRA, arXiv 2106.09685.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trainer.config import LoraConfig
from trainer.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

ADAPTER = "default"
"""peft's name of the only one that is there."""
_BASE, _A, _B = ".base_layer.", f".lora_A.{ADAPTER}.weight", f".lora_B.{ADAPTER}.weight"

Weights = Mapping[str, "Tensor"]


def add_adapters(model: Any, config: LoraConfig, *, seed: int) -> None:
    """Freeze `model` and give its linear layers adapters that change nothing yet: B = 0, A drawn from `seed`.

    Raises ConfigError when peft is missing or `target_modules` are none of the model's linear layers.
    """
    if find_spec("peft") is None or find_spec("accelerate") is None:
        raise ConfigError("trainer.lora needs peft and accelerate: pip install 'grpo-calibrator[lora]'")
    import torch
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model

    targets = config.target_modules
    wanted = PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type] # divided only: a fraction will do
        lora_dropout=0.0,
        bias="none",
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    try:
        inject_adapter_in_model(wanted, model, ADAPTER)
    except ValueError as error:
        raise ConfigError(f"trainer.lora.target_modules = {targets!r}: {error}") from error
    _check_layers(model, config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.requires_grad_(is_adapter(name))
            if name.endswith(_A):  # as torch's linear layers begin, whatever the device
                bound = 1 / math.sqrt(weight.shape[1])
                weight.copy_(torch.empty(weight.shape).uniform_(-bound, bound, generator=random))
    model.eval()


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter."""
    return name.endswith((_A, _B))


def has_adapters(model: Any) -> bool:
    """Whether `add_adapters` was here."""
    return hasattr(model, "peft_config")


def trained_parameters(model: Any) -> dict[str, Parameter]:
    """Parameters that training changes, by their names: those of the adapters, or all."""
    only = has_adapters(model)
    return {name: weight for name, weight in model.named_parameters() if not only or is_adapter(name)}


def trained_weights(model: Any) -> dict[str, Tensor]:
    """The present values of these, not copies."""
    return {name: weight.detach() for name, weight in trained_parameters(model).items()}


def merged(model: Any, weights: Weights, base: Weights | None = None) -> Weights:
    """`weights`, as `trained_weights` gives them, as all weights of the same model without adapters.

    `base`: all weights of `model`, where it does not hold them in full itself.
    """
    if not has_adapters(model):
        return weights
    own = {name: weight.detach() for name, weight in model.named_parameters()} if base is None else base
    return Merged(model, weights, own)


class Merged(Mapping[str, "Tensor"]):
    """W + (alpha / rank) B A by the model's own names, each made when it is asked for; W stays what it is."""

    def __init__(self, model: Any, adapters: Weights, base: Weights) -> None:
        """The frozen weights come from `base`, the scales from `model`, A and B from `adapters`."""
        self._model, self._adapters, self._base = model, adapters, base
        self._names = {name.replace(_BASE, "."): name for name in base if not is_adapter(name)}

    def __getitem__(self, name: str) -> Tensor:
        own = self._names[name]
        weight = self._base[own]
        layer = own.removesuffix(f"{_BASE}weight")
        if layer == own:  # a bias, or a layer without an adapter
            return weight
        module = self._model.get_submodule(layer)
        down, up = (self._adapters[f"{layer}{part}"].to(weight) for part in (_A, _B))
        change: Tensor = module.scaling[ADAPTER] * (up @ down)
        return weight + (change.T if module.fan_in_fan_out else change)  # GPT-2's are [in, out]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def with_weights(model: Any, weights: Weights) -> Any:
    """A model of the same architecture, without adapters, that has these weights and the same buffers."""
    import torch

    with torch.device("meta"):
        plain = type(model)(copy.deepcopy(model.config))
    plain.load_state_dict(dict(weights), strict=False, assign=True)
    for name, buffer in model.named_buffers():  # also those that no state holds
        layer, _, own = name.rpartition(".")
        setattr(plain.get_submodule(layer), own, buffer)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain.eval()


def _check_layers(model: Any, config: LoraConfig) -> None:
    strange = [name for name, _ in model.named_parameters() if "lora_" in name and not is_adapter(name)]
    if strange:
        layer = strange[0].partition(".lora_")[0]
        raise ConfigError(
            f"trainer.lora.target_modules = {config.target_modules!r}: {layer} is no linear layer; leave it out"
        )
