"""What takes long to conclude, kept in the study's `cache/`: digests of logs, the fit with its draws, the suggestion.

Nothing here is an answer of its own. Every file carries a key, the digest of what it was made from (the runs, the
recorded ratios, the code, the versions of the libraries), and a digest of what it holds. Where one of them differs, or
the file cannot be read, it is as if the file were not there; the folder may be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import calibrator
from calibrator.advice.types import Suggested
from calibrator.handoff.logs import Logs, LogSummary
from calibrator.laws.posterior import Posterior
from calibrator.laws.types import Run, StratumFit
from calibrator.study.store import StudyFolder, write_json
from trainer.files import write_atomically

FOLDER, FIT, LOGS, SUGGESTED = "cache", "fit-{key}.safetensors", "logs.json", "suggested.json"
CODE = ("laws", "advice", "handoff")
LIBRARIES = ("numpy", "scipy", "scikit-learn")
Stratum = tuple[StratumFit, Posterior | None, tuple[Run, ...]]


def read_logs(study: StudyFolder) -> dict[int, LogSummary]:
    """What was kept of the logs; empty where nothing was, or by other code."""
    content = _kept(study.root / FOLDER / LOGS)
    return {int(number): LogSummary.model_validate(log) for number, log in content.items()}


def keep_logs(study: StudyFolder, logs: Logs) -> None:
    trials = {str(number): logs[number].model_dump(mode="json") for number in sorted(logs)}
    _keep(study.root / FOLDER / LOGS, trials)


def read_fit(study: StudyFolder, runs: Sequence[Run]) -> list[Stratum] | None:
    """The strata that were fitted to exactly these runs by this code; None where they were not."""
    from safetensors import SafetensorError, safe_open

    key = fit_key(runs)
    path = study.root / FOLDER / FIT.format(key=key)
    try:
        if not path.is_file():
            return None
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, AttributeError, KeyError, TypeError, ValueError, SafetensorError):
        return None
    told = about.get("strata", "")
    if about.get("digest") != _sum(key, told, arrays):
        return None
    return [_stratum(i, each, arrays) for i, each in enumerate(json.loads(told))]


def keep_fit(study: StudyFolder, runs: Sequence[Run], strata: Sequence[Stratum]) -> None:
    """Keep a fit, unless it is there already."""
    from safetensors.numpy import save

    if read_fit(study, runs) is not None:
        return
    arrays: dict[str, Any] = {}
    for i, (_, posterior, _) in enumerate(strata):
        if posterior is not None:
            arrays |= {f"{i}.{name}": getattr(posterior, name) for name in Posterior.__dataclass_fields__}
    told = json.dumps(
        [
            {"summary": s.model_dump(mode="json"), "runs": [run.model_dump(mode="json") for run in r]}
            for s, _, r in strata
        ]
    )
    key = fit_key(runs)
    path = study.root / FOLDER / FIT.format(key=key)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, save(arrays, metadata={"digest": _sum(key, told, arrays), "strata": told}))


def forget_other_fits(study: StudyFolder, keys: Sequence[str]) -> None:
    """Remove kept fits but these."""
    names = {FIT.format(key=key) for key in keys}
    for path in (study.root / FOLDER).glob(FIT.format(key="*")):
        if path.name not in names:
            path.unlink()


def read_suggestion(study: StudyFolder, key: str) -> Suggested | None:
    content = _kept(study.root / FOLDER / SUGGESTED).get(key)
    return None if content is None else Suggested.model_validate(content)


def keep_suggestion(study: StudyFolder, key: str, suggested: Suggested) -> None:
    """Beside those for other intervals, which another horizon may ask for."""
    path = study.root / FOLDER / SUGGESTED
    content = _kept(path) | {key: suggested.model_dump(mode="json")}
    _keep(path, dict(sorted(content.items())))


def fit_key(runs: Sequence[Run]) -> str:
    """Digest of all that a fit depends on."""
    return _key([run.model_dump_json() for run in runs])


def suggestion_key(folders: Sequence[Path], setting: dict[str, Any]) -> str:
    """Digest of recorded ratios and of what is asked of them."""
    summed = hashlib.blake2b(digest_size=16)
    for folder in folders:
        for path in sorted(folder.glob("*ratios-*.safetensors")):
            content = path.read_bytes()
            summed.update(f"{folder.name}/{path.name}/{len(content)}/".encode() + content)
    return _key([summed.hexdigest(), json.dumps(setting, sort_keys=True)])


def _key(parts: Sequence[str]) -> str:
    summed = hashlib.blake2b(digest_size=16)
    for part in (_code(), *parts):
        summed.update(part.encode() + b"\0")
    return summed.hexdigest()


@cache
def _code() -> str:
    """Digest of the code that concludes and of the versions of what it computes with."""
    root, summed = Path(calibrator.__file__).parent, hashlib.blake2b(digest_size=16)
    for path in sorted(path for name in CODE for path in (root / name).rglob("*.py")):
        summed.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    summed.update(json.dumps([version(name) for name in LIBRARIES]).encode())
    return summed.hexdigest()


def _sum(key: str, told: str, arrays: dict[str, Any]) -> str:
    """Digest of what a fit is of, of what is told in words and of all arrays: names, types, shapes and bytes."""
    summed = hashlib.blake2b(f"{key}{told}".encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        summed.update(f"\0{name} {array.dtype} {array.shape}\0".encode())
        summed.update(np.ascontiguousarray(array).tobytes())
    return summed.hexdigest()


def _stratum(number: int, told: dict[str, Any], arrays: dict[str, Any]) -> Stratum:
    own = {name.partition(".")[2]: a for name, a in arrays.items() if name.startswith(f"{number}.")}
    runs = tuple(Run.model_validate(run) for run in told["runs"])
    return StratumFit.model_validate(told["summary"]), Posterior(**own) if own else None, runs


def _kept(path: Path) -> dict[str, Any]:
    """What this code kept in a file, digit by digit as it was; empty for any other."""
    try:
        kept: Any = json.loads(path.read_bytes()) if path.is_file() else None
        content: dict[str, Any] = kept["content"]
        return content if kept["digest"] == _key([json.dumps(content)]) else {}
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return {}


def _keep(path: Path, content: dict[str, Any]) -> None:
    if content != _kept(path):
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"digest": _key([json.dumps(content)]), "content": content})
