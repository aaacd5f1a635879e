"""Scoring that fails, rewards of any scale, prompts of any kind: through the training loop where it matters."""

from __future__ import annotations

import json
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from word_problems import OPTIONS, make_chain_sum, make_word_problems

from trainer.algorithms.advantages import group_normalised
from trainer.config import ModelConfig, ProbeConfig, RunConfig, TaskConfig, TrainerConfig
from trainer.engines.hf import HfEngine
from trainer.engines.tokens import encode
from trainer.errors import ConfigError
from trainer.loop import session
from trainer.loop.prompts import rendered
from trainer.loop.rows import _reward_fields
from trainer.loop.train import train
from trainer.models import Policy, load_policy
from trainer.tasks import Example, RunningSum, Unscored, patience
from trainer.tasks.patience import TimeUpError, call_within
from trainer.tasks.scoring import rewards

STOP = TaskConfig(scoring_timeout=0.3)
SKIP = TaskConfig(scoring_timeout=0.3, on_scoring_error="skip")


def loop_forever() -> float:
    while True:
        pass


def loop_and_swallow() -> float:
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            return 0.0


def swallow_everything() -> float:
    try:
        time.sleep(600)
    except BaseException:
        return 0.0
    return 1.0


def break_down() -> float:
    raise ValueError("cannot parse")


def quit_the_process() -> float:
    raise SystemExit(0)


class Fragile(RunningSum):
    """Fails in its own way on the completion `bad`."""

    def __init__(self, failure: Callable[[], Any]) -> None:
        super().__init__()
        self.failure = failure

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[Any]:
        return [self.failure() if text == "bad" else 1.0 for text in completions]


FAILURES = [
    (loop_forever, "did not end within 0.3 s"),
    (loop_and_swallow, "did not end within 0.3 s"),
    (swallow_everything, "did not end within 0.3 s"),
    (break_down, r"raised ValueError: cannot parse \(test_scoring.py, line \d+\)"),
    (quit_the_process, "raised SystemExit"),
    (lambda: math.nan, "returned nan, not a finite number"),
    (lambda: math.inf, "returned inf, not a finite number"),
    (lambda: None, "returned None, not a finite number"),
    (lambda: "1", "returned '1', not a finite number"),
    (lambda: Unscored("was told nothing"), "was told nothing"),
]


@pytest.mark.parametrize(("failure", "words"), FAILURES)
def test_the_sample_whose_scoring_fails_is_named(failure: Callable[[], Any], words: str) -> None:
    task = Fragile(failure)
    with pytest.raises(
        ConfigError, match=rf"Fragile\.score {words}.* for 'bad' \(reference 'r'\).*on_scoring_error"
    ):
        rewards(task, ["good", "bad", "good"], ["q", "r", "s"], STOP)


@pytest.mark.parametrize(("failure", "words"), FAILURES)
def test_or_it_is_skipped_and_told(
    failure: Callable[[], Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="trainer.tasks"):
        found = rewards(Fragile(failure), ["good", "bad", "good"], ["q", "r", "s"], SKIP)
    assert found[::2] == [1.0, 1.0]
    assert math.isnan(found[1])
    assert "skipped" in caplog.text
    assert "'bad' (reference 'r')" in caplog.text


@pytest.mark.parametrize("config", [STOP, SKIP])
def test_a_batch_without_any_score_ends_the_run(config: TaskConfig) -> None:
    with pytest.raises(ConfigError, match="cannot parse"):
        rewards(Fragile(break_down), ["bad", "bad"], ["r", "s"], config)


@pytest.mark.parametrize("config", [STOP, SKIP])
def test_a_wrong_number_of_rewards_is_an_error(config: TaskConfig) -> None:
    class Short(RunningSum):
        def score(self, completions: Sequence[str], references: Sequence[str]) -> list[float]:
            return [1.0, 1.0, 1.0]

    with pytest.raises(ConfigError, match=r"Short\.score returned 3 rewards for"):
        rewards(Short(), ["a", "b"], ["r", "s"], config)


def test_long_samples_are_shortened_in_the_message() -> None:
    with pytest.raises(ConfigError, match=r"\(9002 characters\)") as raised:
        rewards(Fragile(break_down), ["bad"], ["r" * 9000], STOP)
    assert len(str(raised.value)) < 600


def test_a_limit_restores_what_it_changed_and_other_threads_are_not_interrupted() -> None:
    with pytest.raises(TimeUpError):
        call_within(0.1, loop_forever)
    assert call_within(5.0, lambda: 3) == 3
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(call_within(0.1, lambda: 4)))
    thread.start()
    thread.join()
    assert found == [4]


def test_an_interruption_just_after_the_function_is_time_up_too() -> None:
    """The signal comes, by means of a tracer, at the first line that runs after a function that swallowed one."""
    returned = []

    def slow() -> None:
        swallow_everything()
        returned.append(True)

    def tracer(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is patience._interrupted_after.__code__ and event == "line" and returned:
            returned.clear()
            signal.raise_signal(signal.SIGUSR2)
        return tracer

    before, usual = sys.gettrace(), signal.getsignal(signal.SIGUSR2)
    sys.settrace(tracer)
    try:
        with pytest.raises(TimeUpError):
            call_within(0.05, slow)
    finally:
        sys.settrace(before)
    assert not returned
    assert signal.getsignal(signal.SIGUSR2) == usual
    time.sleep(1.5 * patience.AGAIN)  # Longer than a watcher would wait to interrupt again: it has ended.


@pytest.mark.parametrize("reward", [3000.0, -4.0])
def test_a_reward_outside_the_declared_range_is_an_error_with_the_remedy(reward: float) -> None:
    words = rf"returned {reward:g} for 'bad' .*reward_floor = 0 .*full_marks = 1: declare the scale"
    with pytest.raises(ConfigError, match=words):
        rewards(Fragile(lambda: reward), ["bad", "good"], ["r", "s"], SKIP)


def test_one_completion_may_be_worse_than_guessing() -> None:
    """The floor is what guessing scores on average: single rewards lie on both sides of it."""
    assert rewards(Fragile(lambda: -0.5), ["bad", "good"], ["r", "s"], SKIP)[0] == -0.5


def test_advantages_leave_the_unscored_out() -> None:
    nan = math.nan
    found = group_normalised(torch.tensor([0.0, 1.0, nan, 1.0, nan, nan, nan, nan, 1.0, nan, 1.0, 1.0]), 4)
    alone = group_normalised(torch.tensor([0.0, 1.0, 1.0]), 3)
    assert torch.equal(found[[0, 1, 3]], alone)
    assert found[2] == 0
    assert torch.equal(found[4:], torch.zeros(8))


def test_the_rows_numbers_leave_the_unscored_out() -> None:
    nan = math.nan
    reward = torch.tensor([0.0, 1.0, nan, 1.0, nan, nan, nan, nan, 1.0, nan, 1.0, 1.0])
    fields = _reward_fields(reward, 4, 1.0)
    assert fields["reward_mean"] == pytest.approx((2 / 3 + 1) / 2)
    assert fields["pass_histogram"] == [0, 0, 0, 1, 0, 1]
    assert (fields["signal"], fields["unscored"]) == (0.5, 6)


def small(**changes: Any) -> RunConfig:
    defaults: dict[str, Any] = {
        "trainer": TrainerConfig(group_size=4, prompts_per_update=2, warmup=2),
        "probe": ProbeConfig(every=4, prompts=8),
        "task": TaskConfig(held_out=8, on_scoring_error="skip"),
        "sync_interval": 2,
        "updates": 4,
    }
    return RunConfig(**{**defaults, **changes})


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def run_with(
    task: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, config: RunConfig | None = None
) -> list[dict[str, Any]]:
    monkeypatch.setattr(session, "load_task", lambda _: task)
    train(config or small(), folder)
    return rows(folder)


class Sums(RunningSum):
    """Running sums with a given reward for wrong and for right digits, or a given failure."""

    def __init__(self, wrong: Any, right: Any) -> None:
        super().__init__()
        self.wrong, self.right = wrong, right
        self.reward_floor, self.full_marks = (-4.0, 3000.0) if right == 3000.0 else (0.0, 1.0)

    def score(self, completions: Sequence[str], references: Sequence[str]) -> list[Any]:
        pairs = zip(completions, references, strict=True)
        return [self.right if text[:4] == answer[:4] else self.wrong for text, answer in pairs]


def test_a_run_goes_on_without_what_was_skipped_and_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_with(Sums(math.nan, 1.0), tmp_path, monkeypatch)
    assert all(0 < row["unscored"] < 8 for row in found)
    assert all(row["reward_mean"] == 1.0 and row["signal"] == 0.0 for row in found)


def test_scales_of_thousands_make_the_same_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run_with(Sums(0.0, 1.0), tmp_path / "plain", monkeypatch)
    scaled = run_with(Sums(-4.0, 3000.0), tmp_path / "scaled", monkeypatch)
    for one, other in zip(plain, scaled, strict=True):
        assert other["reward_mean"] == pytest.approx(3004 * one["reward_mean"] - 4, rel=1e-5)
        assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)
        assert (other["pass_histogram"], other["signal"]) == (one["pass_histogram"], one["signal"])


def test_equal_rewards_give_no_gradient_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_with(Sums(0.7, 0.7), tmp_path, monkeypatch)
    assert [(row["signal"], row["grad_norm"]) for row in found] == [(0.0, 0.0)] * 4


def test_an_empty_completion_is_scored_as_any_other_text() -> None:
    task = RunningSum()
    assert rewards(task, ["", "1"], ["1", "1"], STOP) == [0.0, 1.0]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(ModelConfig(), device="cpu")


def with_template(policy: Policy, template: str | None) -> Policy:
    tokenizer = policy.tokenizer
    if template is not None:
        tokenizer = load_policy(ModelConfig(), device="cpu").tokenizer
        tokenizer.chat_template = template
    return replace(policy, tokenizer=tokenizer)


CHAT = "{% for turn in messages %}{{ turn['content'] }}={% endfor %}"
ASK = [{"role": "user", "content": "12"}]


def render(policy: Policy, example: Example, **settings: Any) -> str:
    return rendered([example], policy, TrainerConfig(**settings), source="the task")[0].prompt


def test_messages_go_through_the_chat_template(policy: Policy) -> None:
    chatty = with_template(policy, CHAT)
    assert render(chatty, Example(messages=ASK, reference="3")) == "12="
    assert render(chatty, Example("7", messages=ASK)) == "12="
    assert render(chatty, Example("7")) == "7"
    assert render(policy, Example("7", messages=ASK)) == "7"


@pytest.mark.parametrize(
    ("template", "example", "words"),
    [
        (None, Example(messages=ASK), "has no chat template"),
        ("{{ raise_exception('no system role') }}", Example(messages=ASK), "refuses .*no system role"),
        (None, Example(messages=[{"role": "user"}]), "a role and a content"),
        (None, Example(prompt=3), "must return Examples"),  # type: ignore[arg-type]
        (None, SimpleNamespace(prompt="3", reference="4", messages=()), "must return Examples"),
    ],
)
def test_prompts_that_cannot_be_made_are_named(
    policy: Policy, template: str | None, example: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        render(with_template(policy, template), example)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompt_limit": 8}, r"the prompt '12345678=' has 9 tokens, more than 8 \(trainer\.prompt_limit\)"),
        ({"response_limit": 60}, r"has 9 tokens, more than 4 \(the model's 64 positions less"),
        ({"response_limit": 60, "prompt_limit": 40}, r"more than 4 \(the model's 64"),
    ],
)
def test_prompts_beyond_the_limit_are_named_with_both_numbers(
    policy: Policy, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        render(policy, Example("12345678="), **settings)


def starting(change: Callable[[Tokenizer], None], *, adds: bool = True) -> PreTrainedTokenizerFast:
    """A tokenizer whose start token is `=`, one the embedded model knows; a space in place of `9`."""
    vocabulary = {symbol: index for index, symbol in enumerate(["<pad>", *"012345678\u2581=;"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    change(tokenizer)
    if adds:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="= $A ;", special_tokens=[("=", 11), (";", 12)]
        )
    special = {"bos_token": "=", "eos_token": ";", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def llama_3(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)


def llama_2(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )


def metaspace(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")


@pytest.mark.parametrize("change", [llama_3, llama_2, metaspace])
def test_a_plain_prompt_has_the_start_token_where_the_tokenizer_adds_one(
    policy: Policy, change: Callable[[Tokenizer], None]
) -> None:
    """The tokens of the tokenizer's own way, without its end token; the engine and the limit see the same."""
    llama = replace(policy, tokenizer=starting(change))
    usual = llama.tokenizer("12")["input_ids"]
    assert (usual[0], usual[-1]) == (11, 12)
    text = render(llama, Example("12"))
    assert encode(llama, [text]) == [usual[:-1]]
    assert render(llama, Example("12", messages=ASK)) == text
    assert render(llama, Example(text)) == text
    engine = HfEngine(llama, response_limit=2, temperature=1.0, dtype="float32")
    assert engine.generate([text], samples=1, seed=0).prompt.tolist() == [usual[:-1]]
    with pytest.raises(ConfigError, match=f"has {len(usual) - 1} tokens, more than {len(usual) - 2}"):
        render(llama, Example("12"), prompt_limit=len(usual) - 2)


def test_no_start_token_for_other_tokenizers_nor_beside_a_chat_template(policy: Policy) -> None:
    silent = replace(policy, tokenizer=starting(llama_3, adds=False))
    assert render(silent, Example("12")) == "12"
    assert encode(policy, [render(policy, Example("12="))]) == [[2, 3, 11]]
    llama = replace(policy, tokenizer=starting(llama_3))
    llama.tokenizer.chat_template = "{{ bos_token }}7"
    assert encode(llama, [render(llama, Example(messages=ASK))]) == [[11, 8]]
    llama.tokenizer.chat_template = "7"
    assert encode(llama, [render(llama, Example(messages=ASK))]) == [[8]]


def train_on(folder: Path, task: TaskConfig) -> list[dict[str, Any]]:
    run = RunConfig(
        model=ModelConfig(path=str(folder / "model")),
        task=task,
        trainer=TrainerConfig(response_limit=3, group_size=8, prompts_per_update=4, warmup=2),
        probe=ProbeConfig(every=4, prompts=32),
        learning_rate=3e-4,
        sync_interval=2,
        updates=4,
    )
    train(run, folder / "run")
    return rows(folder / "run")


@pytest.mark.slow
def test_a_study_of_the_users_own_questions(tmp_path: Path) -> None:
    make_word_problems(tmp_path, steps=60)
    options = {"path": str(tmp_path / "problems.jsonl")}
    found = train_on(tmp_path, TaskConfig(name="jsonl", options=options, held_out=32))
    assert all(
        0.0 < row["reward_mean"] < 1.0 and row["signal"] > 0.0 and row["grad_norm"] > 0.0 for row in found
    )
    assert found[0]["initial_reward"] > 0.0


@pytest.mark.slow
def test_a_study_of_a_reasoning_gym_task(tmp_path: Path) -> None:
    make_chain_sum(tmp_path, steps=60)
    found = train_on(tmp_path, TaskConfig(name="reasoning-gym:chain_sum", options=OPTIONS, held_out=32))
    assert all(0.0 <= row["reward_mean"] < 1.0 for row in found)
    assert any(row["signal"] > 0.0 and row["grad_norm"] > 0.0 for row in found)
