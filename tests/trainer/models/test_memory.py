"""The estimate against a measured run, what it follows, what is refused, and what the machine is found to have."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config, Qwen3Config

from trainer.config import RunConfig
from trainer.errors import ConfigError, EnvironmentFailedError
from trainer.machine import host_memory
from trainer.models import memory
from trainer.models.memory import (
    GIB,
    Gpus,
    Shape,
    check_memory,
    count_parameters,
    estimate_memory,
    memory_errors,
    processes_needed,
    reckon,
    sequences_at_once,
    shape_of,
)

PRESETS = Path(__file__).parents[3] / "trainer" / "presets"
PUBLISHED = {
    "qwen3-0.6b": (Shape(28, 1024, 3072, 2048, 1024, 151_936, 40_960, linear_head=True), 596_049_920),
    "qwen3-1.7b": (Shape(28, 2048, 6144, 2048, 1024, 151_936, 40_960, linear_head=True), 1_720_574_976),
    **dict.fromkeys(
        ("qwen3-8b", "qwen3-8b-lora"),
        (Shape(36, 4096, 12_288, 4096, 1024, 151_936, 40_960, linear_head=True), 8_190_735_360),
    ),
    "llama-3.2-1b": (Shape(16, 2048, 8192, 2048, 512, 128_256, 131_072, linear_head=True), 1_235_814_400),
    "llama-3.2-3b": (Shape(28, 3072, 8192, 3072, 1024, 128_256, 131_072, linear_head=True), 3_212_749_824),
}
"""Shapes from the models' published config.json; numbers of parameters from their cards."""
GPU = 79 * GIB
"""What a GPU of 80 GB offers."""
SHAPE = PUBLISHED["qwen3-0.6b"][0]


def config(**trainer: Any) -> RunConfig:
    return RunConfig.model_validate({"trainer": trainer, "updates": 20})


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_preset_fits_a_gpu_of_80_gb(name: str) -> None:
    run = RunConfig.model_validate(tomllib.loads((PRESETS / f"{name}.toml").read_text()))
    shape, parameters = PUBLISHED[name]
    node, processes = (Gpus(GPU, 8), 4) if name == "qwen3-8b" else (Gpus(GPU), 1)
    assert 0.3 * GPU < reckon(run, shape, parameters, gpus=node, processes=processes).total < GPU


def test_a_share_of_the_learner_needs_less_and_who_leads_gathers_the_weights() -> None:
    run = config(response_limit=64, micro_batch_groups=1)
    one, two, four = (reckon(run, SHAPE, 10**9, processes=n) for n in (1, 2, 4))
    for name in ("weights", "Adam's moments", "previous gradient"):
        assert one.always[name] == 2 * two.always[name] == 4 * four.always[name]
    assert one.always["behaviour weights"] == two.always["behaviour weights"]
    assert two.sampling["weights of the probe"] == 4 * 10**9
    assert four.total < two.total < one.total
    assert two.of_followers < two.total - two.always["behaviour weights"] + 1


def test_adapters_need_little_beside_the_frozen_weights() -> None:
    full = reckon(config(), SHAPE, 10**9)
    lora = reckon(config(lora={"rank": 16}), SHAPE, 10**9)
    assert lora.always["weights"] > full.always["weights"]
    assert lora.always["Adam's moments"] < 0.02 * full.always["Adam's moments"]
    # The engine shares the frozen weights with the learner; a rollout process has some of its own.
    assert lora.always["behaviour weights"] < 0.02 * full.always["behaviour weights"]
    apart = RunConfig.model_validate({"trainer": {"lora": {"rank": 16}}, "schedule": "overlap"})
    assert reckon(apart, SHAPE, 10**9).always["behaviour weights"] > full.always["behaviour weights"]


def test_a_trial_takes_as_many_processes_as_its_learner_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "model_folder", lambda config: Path("none"))
    monkeypatch.setattr(memory, "model_shape", lambda folder: PUBLISHED["qwen3-8b"][0])
    monkeypatch.setattr(memory, "count_parameters", lambda folder: PUBLISHED["qwen3-8b"][1])
    full, lora = (
        RunConfig.model_validate(tomllib.loads((PRESETS / f"qwen3-8b{kind}.toml").read_text()))
        for kind in ("", "-lora")
    )
    assert processes_needed(full, None) == 1
    assert processes_needed(full, Gpus(GPU, 8)) == 4  # vLLM has the other four
    assert processes_needed(lora, Gpus(GPU, 8)) == 1


def test_every_trainer_preset_has_its_published_shape_here() -> None:
    assert {path.stem for path in PRESETS.glob("*.toml")} == set(PUBLISHED)


@pytest.mark.parametrize(
    ("changes", "lower"),
    [
        ({"micro_batch_groups": 1}, True),
        ({"response_limit": 128}, True),
        ({"gradient_checkpointing": True}, True),
        ({"dtype": "bfloat16"}, True),
        ({"group_size": 32}, False),
    ],
)
def test_the_estimate_follows_what_the_refusal_says_to_lower(changes: dict[str, Any], *, lower: bool) -> None:
    base = {"response_limit": 512, "group_size": 16}
    before = reckon(config(**base), SHAPE, 10**8).total
    after = reckon(config(**{**base, **changes}), SHAPE, 10**8).total
    assert (after < before) == lower


def test_a_capped_head_is_reckoned_with_all_its_logits() -> None:
    run, capped = config(response_limit=512), Shape(**{**SHAPE.__dict__, "linear_head": False})
    assert reckon(run, capped, 10**8).total - reckon(run, SHAPE, 10**8).total > 100 * GIB


def test_shapes_of_other_families_are_read() -> None:
    gpt2 = shape_of(GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=99).to_dict())
    assert (gpt2.layers, gpt2.hidden, gpt2.intermediate, gpt2.keys, gpt2.vocabulary) == (3, 64, 256, 64, 99)
    qwen = shape_of(Qwen3Config(num_attention_heads=4, num_key_value_heads=2, head_dim=32).to_dict())
    assert (qwen.queries, qwen.keys) == (128, 64)


def test_a_cache_holds_what_fits_into_it() -> None:
    assert sequences_at_once(SHAPE, 17, "bfloat16") == 1024
    assert sequences_at_once(SHAPE, 1280, "bfloat16") == 4 * GIB // (2 * 28 * 1024 * 2 * 1280)
    assert sequences_at_once(SHAPE, 10**9, "float32") == 1


def test_a_run_that_does_not_fit_is_refused_with_its_terms_and_remedies() -> None:
    run = RunConfig()
    need = estimate_memory(run).total
    check_memory(run, available=need)
    check_memory(run, available=None)
    with pytest.raises(ConfigError, match=r"process .* GiB.*trainer\.micro_batch_groups \(now 8\).*bfloat16"):
        check_memory(run, available=need - 1)
    with pytest.raises(ConfigError, match=r"3 at a time.*resources\.workers \(now 3\)"):
        check_memory(run, available=2 * need, at_a_time=3)


@pytest.mark.slow
def test_the_estimate_is_within_a_factor_2_of_a_measured_run(
    tmp_path: Path, make_model: Callable[..., Path]
) -> None:
    folder = make_model(
        tmp_path / "model", hidden_size=512, intermediate_size=1024, vocab_size=20_000, num_attention_heads=4
    )
    run = RunConfig.model_validate(
        {
            "model": {"path": str(folder)},
            "trainer": {"group_size": 4, "prompts_per_update": 2, "response_limit": 9, "warmup": 0},
            "probe": {"every": 10, "prompts": 8},
            "task": {"held_out": 8},
            "sync_interval": 1,
            "checkpoint_every": 1,
            "updates": 2,
        }
    )
    code = (
        "import re, sys\nfrom pathlib import Path\nfrom trainer.config import RunConfig\n"
        "from trainer.loop.train import train\n"
        "train(RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))\n"
        # Not `ru_maxrss`, which begins with the size of the process that started this one.
        "print(1024 * int(re.search(r'VmHWM:[^0-9]+([0-9]+)', Path('/proc/self/status').read_text())[1]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, run.model_dump_json(), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    measured = int(answer.stdout)
    assert count_parameters(folder) > 2 * 10**7
    assert measured > 2 * estimate_memory(run).always["process"]  # much more than a process without a model
    assert 0.5 < estimate_memory(run).total / measured < 2.0


def test_running_out_of_memory_says_what_to_lower() -> None:
    for error in (
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried"
        ),
    ):
        with (
            pytest.raises(EnvironmentFailedError, match=r"out of memory.*workers.*micro_batch_groups"),
            memory_errors(RunConfig()),
        ):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), memory_errors(RunConfig()):
        raise RuntimeError("shapes do not match")


def machine(root: Path, *, meminfo: int | None = 8 * GIB, **limits: str) -> dict[str, Path]:
    """Files of a machine with a cgroup /box in which this process is."""
    proc, cgroup = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (cgroup / "box").mkdir(parents=True)
    if meminfo is not None:
        (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {meminfo // 1024} kB\n")
    (proc / "self" / "cgroup").write_text("0::/box\n")
    for name, content in limits.items():
        (cgroup / "box" / name.replace("_", ".")).write_text(content)
    return {"proc": proc, "cgroup": cgroup}


def test_the_tighter_of_machine_and_cgroup_counts(tmp_path: Path) -> None:
    assert host_memory(**machine(tmp_path / "free")) == 8 * GIB
    unlimited = {"memory_max": "max", "memory_current": "5", "memory_stat": "inactive_file 1"}
    assert host_memory(**machine(tmp_path / "unlimited", **unlimited)) == 8 * GIB
    # File pages that the kernel would drop are no obstacle.
    tight = {
        "memory_max": str(3 * GIB),
        "memory_current": str(2 * GIB),
        "memory_stat": f"inactive_file {GIB}",
    }
    assert host_memory(**machine(tmp_path / "tight", **tight)) == 2 * GIB
    assert host_memory(**machine(tmp_path / "silent", meminfo=None)) is None


def test_this_machine_tells_or_says_nothing() -> None:
    room = host_memory()
    assert room is None or room > 0


def test_broken_sizes_are_named(tmp_path: Path, make_model: Callable[..., Path]) -> None:
    folder = make_model(tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "hidden_size": "wide"}))
    with pytest.raises(ConfigError, match="holds no sizes"):
        estimate_memory(RunConfig.model_validate({"model": {"path": str(folder)}}))
