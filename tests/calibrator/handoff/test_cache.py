"""The cache of a study: what was changed or cannot be read is as if it were not there."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.advice.types import Suggested
from calibrator.handoff import cache
from calibrator.handoff.logs import LogSummary
from calibrator.laws.posterior import Posterior
from calibrator.laws.types import Identifiable, Run, StratumFit
from calibrator.study.store import StudyFolder
from calibrator.verdicts.types import Verdict

RUN = Run(
    run="a",
    estimator="gmc",
    sync_interval=4,
    max_lag=3,
    learning_rate=1e-3,
    updates=400,
    verdict=Verdict.STABLE,
    cumulative_lr=0.1 + 0.2,
)
LOG = LogSummary(
    digest="d", max_lag=3, response_length=9.0, start=0.1, cumulative_lr=[0.1], reward=[1 / 3], se=[None]
)
SUGGESTED = Suggested(group_size=16, epsilon=0.2, reason="as good")


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    """With one of each kept."""
    folder = StudyFolder(tmp_path)
    draws = np.linspace(0.1, 0.9, 5)
    posterior = Posterior(np.zeros(5, np.int64), *(draws + i for i in range(6)))
    summary = StratumFit(
        estimator="gmc",
        runs=1,
        events=0,
        survivors=1,
        excluded=0,
        identifiable=Identifiable(C=False, alpha=False, B=False),
        longest_cumulative_lr=0.3,
    )
    cache.keep_logs(folder, {0: LOG})
    cache.keep_fit(folder, [RUN], [(summary, posterior, (RUN,))])
    cache.keep_suggestion(folder, "one", SUGGESTED)
    return folder


def kept(study: StudyFolder) -> tuple[Any, ...]:
    return cache.read_logs(study), cache.read_fit(study, [RUN]), cache.read_suggestion(study, "one")


def fit_file(study: StudyFolder) -> Path:
    (path,) = (study.root / "cache").glob("fit-*.safetensors")
    return path


def test_what_was_kept_comes_back(study: StudyFolder) -> None:
    logs, fit, suggestion = kept(study)
    assert (logs, suggestion) == ({0: LOG}, SUGGESTED)
    assert fit is not None
    (summary, posterior, runs) = fit[0]
    assert (summary.runs, runs) == (1, (RUN,))
    np.testing.assert_array_equal(posterior.log_B, np.linspace(0.1, 0.9, 5) + 4)
    assert cache.read_suggestion(study, "another") is None


def changed(content: Any) -> list[Any]:
    """Every JSON value with one leaf of it changed, its type kept where that is possible."""
    if isinstance(content, dict):
        return [{**content, key: new} for key, value in content.items() for new in changed(value)]
    if isinstance(content, list):
        each = [[*content[:i], new, *content[i + 1 :]] for i, v in enumerate(content) for new in changed(v)]
        return [*each, content[:-1]] if content else [[1.0]]
    if isinstance(content, str):
        return [content + "9"]
    return [0.5, float("nan"), 10**30, -7] if content is None else [content + 1, float("nan"), None]


@pytest.mark.parametrize("name", ["logs.json", "suggested.json"])
def test_a_changed_value_is_no_value(study: StudyFolder, name: str) -> None:
    path = study.root / "cache" / name
    variants = changed(json.loads(path.read_text()))
    assert len(variants) > 8
    for variant in variants:
        path.write_text(json.dumps(variant))
        assert cache.read_logs(study) == ({0: LOG} if name == "suggested.json" else {})
        assert cache.read_suggestion(study, "one") == (SUGGESTED if name == "logs.json" else None)


def header(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def write_header(path: Path, head: dict[str, Any], rest: bytes) -> None:
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)


def test_changed_words_of_a_fit_are_no_fit(study: StudyFolder) -> None:
    """A header that is written anew is not the reason."""
    path = fit_file(study)
    head, rest = header(path)
    write_header(path, head, rest)
    assert cache.read_fit(study, [RUN]) is not None
    about = head["__metadata__"]
    told = about["strata"]
    deep = "[" * 100_000
    for strata in (told.replace('"runs": 1', '"runs": 99'), told.replace("gmc", "gm\x1b"), deep, "", "[]"):
        assert strata != told
        write_header(path, {**head, "__metadata__": {**about, "strata": strata}}, rest)
        assert cache.read_fit(study, [RUN]) is None
    for metadata in ({}, {"digest": about["digest"]}, {"strata": told}):
        write_header(path, {**head, "__metadata__": metadata}, rest)
        assert cache.read_fit(study, [RUN]) is None


def test_changed_arrays_of_a_fit_are_no_fit(study: StudyFolder) -> None:
    """Bytes, and names, types and shapes over the same bytes."""
    path = fit_file(study)
    head, rest = header(path)
    write_header(path, head, rest[:-1] + bytes([rest[-1] ^ 1]))
    assert cache.read_fit(study, [RUN]) is None
    entry = head["0.log_B"]
    for change in ({"dtype": "I64"}, {"shape": [5, 1]}, {"dtype": "BF16", "shape": [20]}):
        write_header(path, {**head, "0.log_B": {**entry, **change}}, rest)
        assert cache.read_fit(study, [RUN]) is None
    write_header(path, {**head, "0.log_B": head["0.log_C"], "0.log_C": entry}, rest)
    assert cache.read_fit(study, [RUN]) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"content": {}}'])
def test_garbage_is_as_good_as_nothing(study: StudyFolder, content: bytes) -> None:
    for path in (study.root / "cache").iterdir():
        path.write_bytes(content)
    assert kept(study) == ({}, None, None)


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize("make", [os.mkfifo, folder, dangling])
def test_what_is_no_file_is_not_read(study: StudyFolder, make: Any) -> None:
    """Nor waited for, as a pipe would be."""
    for path in list((study.root / "cache").iterdir()):
        path.unlink()
        make(path)
    assert kept(study) == ({}, None, None)


def test_the_same_is_not_written_again(study: StudyFolder) -> None:
    """So that a cache that may only be read is no failure."""
    before = {path: path.stat().st_mtime_ns for path in (study.root / "cache").iterdir()}
    cache.keep_logs(study, cache.read_logs(study))
    cache.keep_suggestion(study, "one", SUGGESTED)
    assert before == {path: path.stat().st_mtime_ns for path in (study.root / "cache").iterdir()}
    cache.keep_suggestion(study, "two", SUGGESTED)
    assert cache.read_suggestion(study, "one") == cache.read_suggestion(study, "two") == SUGGESTED
