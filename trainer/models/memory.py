"""How much memory a run needs, from its configuration and the headers of its weights. Importing this needs no torch.

Every number is a count of tensors times their size; what had to be assumed says so. All in bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import LoraConfig, RunConfig
from trainer.errors import ConfigError, EnvironmentFailedError
from trainer.models.folder import model_folder, read_shape, weight_files

GIB = 2**30
LOGIT_BYTES = GIB // 4
"""Float32 logits that the learner makes at a time, see `trainer.loop.logprobs`."""
CACHE_BYTES = 4 * GIB
"""Key-value cache that the engine `hf` fills at a time; a longer batch of prompts is sampled in parts."""
SEQUENCES_AT_ONCE = 1024
"""Trajectories that one cache holds: beyond about a thousand the cost per token no longer falls on a CPU."""
LONGEST_HEADER = 100_000_000
"""The limit of the safetensors format."""
PROCESS_BYTES = 450 * 2**20
"""A process with torch and transformers loaded. Measured on a CPU; a CUDA context is about as large (assumed)."""
VLLM_BYTES = 2 * GIB
"""A vLLM engine on a CPU beside its weights and cache. Measured with vLLM 0.32."""
USUAL_PROMPT = 256
"""Prompt tokens where `trainer.prompt_limit` does not say, or as many as the response. Assumed."""
LOGIT_COPIES = 4
"""Logits, tempered, their log-softmax and its gradient, float32."""
CHUNK_COPIES = 4
"""Of a chunk: logits, temporaries of the same size, and what the allocator does not give back. Assumed."""
LEADERS = (
    "behaviour weights",
    "vLLM",
    "policy of the rollout process",
    "rollout process",
    "weights on their way",
)
"""Terms of the process that samples."""
OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc")
"""How torch says it."""
NOT_LINEAR = ("final_logit_softcapping", "logits_scaling", "logit_scale", "lm_head_multiplier")
"""Keys of config.json that change logits after the output head: all logits are then made at once."""


@dataclass(frozen=True)
class Shape:
    """What of a model's config.json decides its memory; missing keys count as a Llama-like model's."""

    layers: int
    hidden: int
    intermediate: int
    queries: int
    """Query heads times their size."""
    keys: int
    """Key-value heads times their size."""
    vocabulary: int
    positions: int
    linear_head: bool

    @property
    def layer_elements(self) -> int:
        """Elements per token that one layer keeps for its backward pass, counted for a Llama-like layer.

        6 hidden (two norms), 9 of the queries' width (projection, norm, rotation, widened keys and values, output),
        7 of the keys' width, 4 intermediate (gate, its activation, up, product). Attention maps are not kept.
        """
        return 6 * self.hidden + 9 * self.queries + 7 * self.keys + 4 * self.intermediate

    @property
    def layer_weights(self) -> int:
        """Parameters of one Llama-like layer."""
        return self.hidden * (2 * self.queries + 2 * self.keys + 3 * self.intermediate)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they are for."""

    always: dict[str, int]
    learning: dict[str, int]
    sampling: dict[str, int]
    together: bool = False
    """Whether learning and sampling happen at the same time on the device; when they take turns, the larger counts."""

    @property
    def total(self) -> int:
        """Peak of the run."""
        return sum(size for _, size in self.largest)

    @property
    def of_followers(self) -> int:
        """Of a process that holds its share and samples nothing."""
        own = sum(size for name, size in self.always.items() if name not in LEADERS)
        return own + sum(self.learning.values())

    @property
    def largest(self) -> list[tuple[str, int]]:
        """The terms of the peak, largest first."""
        phases = [self.learning, self.sampling]
        if not self.together:
            phases = [max(phases, key=lambda terms: sum(terms.values()))]
        terms = [*self.always.items(), *(term for phase in phases for term in phase.items())]
        return sorted(terms, key=lambda term: -term[1])


@dataclass(frozen=True)
class Gpus:
    """What a run sees of its GPUs."""

    bytes: int
    """Memory of the learner's."""
    count: int = 1


def estimate_memory(config: RunConfig, *, gpus: Gpus | None = None, processes: int = 1) -> MemoryEstimate:
    """Peak memory of one run of the model in its folder, see `reckon`.

    Raises ConfigError when the model's files cannot be read.
    """
    folder = model_folder(config.model)
    return reckon(config, model_shape(folder), count_parameters(folder), gpus=gpus, processes=processes)


def reckon(
    config: RunConfig, shape: Shape, parameters: int, *, gpus: Gpus | None = None, processes: int = 1
) -> MemoryEstimate:
    """Peak memory of one run on the learner's device, every response at its limit; without `gpus` on a CPU.

    Of several `processes`, that which leads: it also samples, for which it gathers all weights.
    """
    trained = parameters if config.trainer.lora is None else adapter_parameters(config.trainer.lora, shape)
    frozen = parameters if config.trainer.lora is not None else 0
    always = _always(trained // processes, frozen // processes)
    learning = _learning(config, shape, trained // processes, frozen // processes, processes)
    if (
        gpus is not None
        and gpus.count > processes
        and (config.schedule == "overlap" or config.engine == "vllm-server")
    ):
        probe = {} if processes == 1 else {"weights of the probe": 4 * parameters}
        return MemoryEstimate(always, learning, probe)  # rollouts are made on another GPU
    return MemoryEstimate(
        {**always, **_rollouts(config, trained, frozen, gpus, processes)},
        learning,
        _sampling(config, shape, trained + frozen, gpus, processes),
        together=config.schedule == "overlap",
    )


def processes_needed(config: RunConfig, gpus: Gpus | None) -> int:
    """Fewest processes, each with one of `gpus`, that the learner fits into, as estimated; 1 on a CPU.

    `vllm-server` has the last GPUs to itself where there are several. At most all that are left.
    """
    if gpus is None or config.engine == "vllm":  # which cannot share its process with a team
        return 1
    beside = config.vllm.tensor_parallel if config.engine == "vllm-server" else 0
    most = max(1, gpus.count - beside)
    counts = range(1, most + 1)
    fitting = (n for n in counts if estimate_memory(config, gpus=gpus, processes=n).total <= gpus.bytes)
    return next(fitting, most)


def check_memory(
    config: RunConfig,
    *,
    available: int | None,
    gpus: Gpus | None = None,
    at_a_time: int = 1,
    processes: int = 1,
) -> None:
    """Raises ConfigError, with the estimate and what to lower, when `at_a_time` such runs do not fit into `available`.

    Of the `processes` of one run each has a GPU of its own, or all share the memory of the machine.

    None for `available` means that the machine does not tell: nothing is checked.
    """
    if available is None:
        return
    estimate = estimate_memory(config, gpus=gpus, processes=processes)
    others = 0 if gpus is not None else (processes - 1) * estimate.of_followers
    if (estimate.total + others) * at_a_time <= available:
        return
    terms = ", ".join(f"{name} {_gib(size)}" for name, size in estimate.largest[:3])
    times = f" each, {at_a_time} at a time," if at_a_time > 1 else ""
    raise ConfigError(
        f"memory: a run needs about {_gib(estimate.total)}{times} ({terms}), and {_gib(available)} are free; "
        f"{_remedies(config, at_a_time)}"
    )


@contextmanager
def memory_errors(config: RunConfig) -> Iterator[None]:
    """Turn running out of memory into an EnvironmentFailedError that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch reports a full GPU or host memory as a RuntimeError; any other one is a bug.
        text = str(error).strip() or type(error).__name__
        if not isinstance(error, MemoryError) and not any(sign in text.lower() for sign in OUT_OF_MEMORY):
            raise
        raise EnvironmentFailedError(
            f"out of memory ({text.splitlines()[0]}): with fewer trials at a time (resources.workers) the same command "
            f"continues; or, in another folder, {_remedies(config, 1)}"
        ) from error


def count_parameters(folder: Path) -> int:
    """Parameters in the safetensors files of `folder`, from their headers; a tied output head counts once."""
    sizes: dict[str, int] = {}
    for path in weight_files(folder):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(min(int.from_bytes(file.read(8), "little"), LONGEST_HEADER)))
            sizes |= {
                name: math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"model.path: {path} is no safetensors file ({error}); save the model anew"
            ) from error
    if read_shape(folder).get("tie_word_embeddings"):
        sizes.pop("lm_head.weight", None)
    return sum(sizes.values())


def model_shape(folder: Path) -> Shape:
    """Shape of the model in `folder`. Raises ConfigError when config.json holds no numbers."""
    try:
        return shape_of(read_shape(folder))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"model.path: {folder / 'config.json'} holds no sizes ({error}); save the model anew"
        ) from error


def shape_of(content: Mapping[str, Any]) -> Shape:
    """Shape from the content of a config.json."""
    hidden = _number(content, "hidden_size", "n_embd")
    heads = _number(content, "num_attention_heads", "n_head", otherwise=1)
    size = _number(content, "head_dim", otherwise=hidden // max(1, heads))
    return Shape(
        layers=_number(content, "num_hidden_layers", "n_layer"),
        hidden=hidden,
        intermediate=_number(content, "intermediate_size", "n_inner", otherwise=4 * hidden),
        queries=heads * size,
        keys=_number(content, "num_key_value_heads", otherwise=heads) * size,
        vocabulary=_number(content, "vocab_size"),
        positions=_number(content, "max_position_embeddings", "n_positions", otherwise=2**20),
        linear_head=not any(content.get(key) for key in NOT_LINEAR),
    )


def sequences_at_once(shape: Shape, tokens: int, dtype: str) -> int:
    """Trajectories of `tokens` tokens whose key-value cache fits into `CACHE_BYTES`, at least 1."""
    per_token = 2 * shape.layers * shape.keys * _width(dtype)
    return max(1, min(SEQUENCES_AT_ONCE, CACHE_BYTES // max(1, per_token * tokens)))


def adapter_parameters(lora: LoraConfig, shape: Shape) -> int:
    """Parameters of the adapters: rank x (in + out) for each linear layer, named as in a Llama-like model.

    Names that such a model does not have count as its largest layer.
    """
    hidden, wide = shape.hidden, shape.intermediate
    ends = {
        **dict.fromkeys(("q_proj", "o_proj"), hidden + shape.queries),
        **dict.fromkeys(("k_proj", "v_proj"), hidden + shape.keys),
        **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), hidden + wide),
    }
    names = ends if lora.target_modules == "all-linear" else lora.target_modules
    return shape.layers * lora.rank * sum(ends.get(name, hidden + wide) for name in names)


def _always(trained: int, frozen: int) -> dict[str, int]:
    """float32: weights, Adam's two moments and the previous gradient live from one update to the next."""
    return {
        "process": PROCESS_BYTES,
        "weights": 4 * (trained + frozen),
        "Adam's moments": 8 * trained,
        "previous gradient": 4 * trained,
    }


def _rollouts(
    config: RunConfig, trained: int, frozen: int, gpus: Gpus | None, processes: int
) -> dict[str, int]:
    """What makes rollouts beside the learner, from one update to the next."""
    overlap, parameters = config.schedule == "overlap", trained + frozen
    terms: dict[str, int] = {}
    if config.engine == "hf":  # frozen weights are those of the learner, unless another process has them
        terms["behaviour weights"] = 4 * (parameters if overlap or processes > 1 else trained)
    elif gpus is None:
        terms["vLLM"] = VLLM_BYTES + config.vllm.cache_gib * GIB + _width(config.trainer.dtype) * parameters
    elif overlap or not config.vllm.sleep:
        terms["vLLM"] = int(config.vllm.memory_share * gpus.bytes)
    if overlap and config.engine != "hf":
        terms["policy of the rollout process"] = 4 * parameters
    if overlap and gpus is None:
        terms |= {"rollout process": PROCESS_BYTES, "weights on their way": 2 * 4 * trained}
    return terms


def _learning(config: RunConfig, shape: Shape, trained: int, frozen: int, processes: int) -> dict[str, int]:
    """The backward pass of one micro-batch, or the end of the update, whichever is larger. Weights of one process."""
    trainer = config.trainer
    own = -(-trainer.prompts_per_update // processes)
    groups = min(trainer.micro_batch_groups or own, own)
    sequences = groups * trainer.group_size
    length = trainer.response_limit + prompt_length(config, shape)
    # In 16 bit norms still work in float32, hence 3 bytes on average.
    layer = sequences * length * shape.layer_elements * (3 if trainer.dtype == "bfloat16" else 4)
    states = sequences * length * shape.hidden * 4
    kept = (
        layer + shape.layers * states
    )  # with checkpointing: the inputs of all layers, and one layer in full
    activations = kept if trainer.gradient_checkpointing else shape.layers * layer
    forward = {"activations": activations + 3 * states, "logits": _logits(config, shape, sequences)}
    if trainer.dtype == "bfloat16" and processes == 1:
        forward["16-bit weights"] = 2 * (trained + frozen)
    if (
        processes > 1
    ):  # embeddings, head and one layer with their gradients, the next layer, and a copy to send
        ends, layer_weights = 2 * shape.vocabulary * shape.hidden, shape.layer_weights
        forward["gathered weights"] = 4 * (3 * ends + 4 * layer_weights)
    # The gradient laid out flat beside its parts, then a temporary of the optimizer's of the same size.
    step = {"optimizer's step": 4 * trained}
    larger = forward if sum(forward.values()) > sum(step.values()) else step
    return {"gradient": 4 * trained, **larger}


def _sampling(
    config: RunConfig, shape: Shape, parameters: int, gpus: Gpus | None, processes: int
) -> dict[str, int]:
    found = _engine(config, shape, parameters, gpus)
    if processes == 1:
        return found
    probe = {"weights of the probe": 4 * parameters}
    # A probe is drawn by transformers, from gathered weights, while vLLM sleeps.
    return {**found, **probe} if config.engine == "hf" else max(found, probe, key=lambda t: sum(t.values()))


def _engine(config: RunConfig, shape: Shape, parameters: int, gpus: Gpus | None) -> dict[str, int]:
    if config.engine != "hf":
        in_turns = gpus is not None and config.vllm.sleep and config.schedule == "lockstep"
        return {"vLLM": int(config.vllm.memory_share * gpus.bytes)} if gpus is not None and in_turns else {}
    trainer = config.trainer
    length = trainer.response_limit + prompt_length(config, shape)
    wanted = max(
        trainer.group_size * trainer.prompts_per_update * config.sync_interval,
        config.probe.prompts,
        config.task.held_out if config.evaluate else 0,
    )
    # Whole groups, so at least one; a growing cache is copied layer by layer.
    at_once = max(trainer.group_size, min(wanted, sequences_at_once(shape, length, trainer.dtype)))
    per_token = 2 * shape.keys * _width(trainer.dtype)
    casts = {"16-bit weights": 2 * parameters} if trainer.dtype == "bfloat16" else {}
    return {
        **casts,
        "key-value cache": at_once * length * per_token * (shape.layers + 1),
        "logits": at_once * shape.vocabulary * 4 * LOGIT_COPIES,
    }


def _logits(config: RunConfig, shape: Shape, sequences: int) -> int:
    whole = sequences * config.trainer.response_limit * shape.vocabulary * 4
    if whole <= LOGIT_BYTES or not shape.linear_head:
        return whole * LOGIT_COPIES
    # Beside the chunk: the head's gradient, and the head in 16 bit.
    return LOGIT_BYTES * CHUNK_COPIES + shape.vocabulary * shape.hidden * 6


def prompt_length(config: RunConfig, shape: Shape) -> int:
    """Prompt tokens that are reckoned with, at most what the model's positions leave beside the response."""
    trainer = config.trainer
    wanted = trainer.prompt_limit or min(trainer.response_limit, USUAL_PROMPT)
    return max(1, min(wanted, shape.positions - trainer.response_limit))


def _remedies(config: RunConfig, at_a_time: int) -> str:
    trainer = config.trainer
    micro = trainer.micro_batch_groups or trainer.prompts_per_update
    wishes = [
        (at_a_time > 1, f"resources.workers (now {at_a_time})"),
        (micro > 1, f"trainer.micro_batch_groups (now {micro})"),
        (trainer.response_limit > 1, f"trainer.response_limit (now {trainer.response_limit})"),
    ]
    lower = [text for wanted, text in wishes if wanted]
    switches = [
        (not trainer.gradient_checkpointing, "trainer.gradient_checkpointing = true"),
        (trainer.dtype == "float32", 'trainer.dtype = "bfloat16"'),
    ]
    choose = [text for wanted, text in switches if wanted]
    return "; ".join(
        [f"lower {', '.join(lower)}"] * bool(lower)
        + [f"set {', '.join(choose)}"] * bool(choose)
        + ["or take a smaller model"]
    )


def _number(content: Mapping[str, Any], *names: str, otherwise: int = 0) -> int:
    return next((int(content[name]) for name in names if content.get(name) is not None), otherwise)


def _width(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else 4


def _gib(size: int) -> str:
    return f"{size / GIB:.3g} GiB"
