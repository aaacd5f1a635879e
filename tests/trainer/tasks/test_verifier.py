"""math-verify in its processes: right answers, hangs, dead workers, no orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainer.tasks.protocol import Unscored
from trainer.tasks.verifier import Verifier

ENDLESS = "$10^{10^{10}}$"
"""math-verify works out all ten thousand million digits of it, in compiled code."""


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    pool = Verifier(timeout=10)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    ("answer", "completion", "equal"),
    [
        ("1/2", "\\frac{2}{4}", True),
        ("x+1", "1+x", True),
        ("1+x", "1", False),
        ("(1,2)", "(1, 2)", True),
        ("(1,2)", "2", False),
        ("50%", "0.5", True),
        ("1/3", "0.333333", True),
        ("12", "It takes 12 apples.", True),
        ("12", "It takes 13 apples.", False),
        ("7", "so \\boxed{7}", True),
        ("2", "((((", False),
    ],
)
def test_mathematics_is_compared(verifier: Verifier, answer: str, completion: str, equal: bool) -> None:
    assert verifier.equal([(answer, completion)]) == [equal]


def test_a_comparison_that_never_ends_is_unscored_and_the_others_are_told() -> None:
    pool = Verifier(timeout=4)
    verdicts = pool.equal([("7", "$7$"), ("7", ENDLESS), ("8", "$7$"), ("7", "$7.0$")])
    pool.close()
    assert verdicts[0] is True
    assert verdicts[1] == Unscored("math-verify took longer than task.scoring_timeout = 4 s")
    assert verdicts[2:] == [False, True]


def test_a_worker_that_was_killed_is_replaced(verifier: Verifier) -> None:
    assert verifier.equal([("7", "$7$")]) == [True]
    for worker in verifier._idle:
        worker.process.kill()
        worker.process.wait()
    assert verifier.equal([("7", "$7$"), ("8", "$7$")]) == [True, False]


def test_threads_take_turns(verifier: Verifier) -> None:
    pairs = [(str(i), f"${i + i % 2}$") for i in range(20)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda pair: verifier.equal([pair])[0], pairs)) == [
            i % 2 == 0 for i in range(20)
        ]


def test_closing_ends_the_workers() -> None:
    pool = Verifier(timeout=10)
    pool.equal([("7", "$7$")])
    processes = [worker.process.pid for worker in pool._idle]
    pool.close()
    assert processes
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    """Idle workers see the end of their input; one in the midst of a comparison has its own alarm."""
    code = textwrap.dedent(f"""
        import threading
        from trainer.tasks.verifier import Verifier
        pool = Verifier(timeout=2)
        pool.equal([("7", "$7$"), ("8", "$8$")])
        print(*[worker.process.pid for worker in pool._idle], flush=True)
        pool.equal([("7", {ENDLESS!r})])
    """)
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    processes = [int(pid) for pid in owner.stdout.readline().split()]
    assert processes
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 60
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_runs, processes))


def _runs(pid: int) -> bool:
    """Whether the process is there and no zombie that waits for whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_do_not_import_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "math_verify.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    assert os.getcwd() == str(tmp_path)  # noqa: PTH109
    pool = Verifier(timeout=10)
    assert pool.equal([("7", "$7$")]) == [True]
    pool.close()
