"""What takes long to conclude, kept in the study's `cache/`: digests of logs, the fit with its draws, the suggestion.

Nothing here is an answer of its own. Everything carries a digest of what it was made from (the runs, the recorded
ratios, the code, the versions of the libraries) and is made anew where that differs; the folder may be deleted.
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
from pydantic import ValidationError

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
    content = _read(study.root / FOLDER / LOGS, _code())
    try:
        return {int(number): LogSummary.model_validate(log) for number, log in content.items()}
    except (ValidationError, ValueError):
        return {}


def keep_logs(study: StudyFolder, logs: Logs) -> None:
    trials = {str(number): logs[number].model_dump(mode="json") for number in sorted(logs)}
    write_json(_folder(study) / LOGS, {"key": _code(), "content": trials})


def read_fit(study: StudyFolder, runs: Sequence[Run]) -> list[Stratum] | None:
    """The strata that were fitted to exactly these runs by this code; None where they were not."""
    from safetensors import SafetensorError, safe_open

    path = study.root / FOLDER / FIT.format(key=fit_key(runs))
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if about.get("key") != fit_key(runs) or about.get("arrays") != _sum(arrays):
            return None
        return [_stratum(i, each, arrays) for i, each in enumerate(json.loads(about["strata"]))]
    except (OSError, KeyError, TypeError, ValueError, SafetensorError):
        return None


def keep_fit(study: StudyFolder, runs: Sequence[Run], strata: Sequence[Stratum]) -> None:
    """Keep a fit, unless it is there already."""
    from safetensors.numpy import save

    if read_fit(study, runs) is not None:
        return

    arrays: dict[str, Any] = {}
    for i, (_, posterior, _) in enumerate(strata):
        if posterior is not None:
            arrays |= {f"{i}.{name}": getattr(posterior, name) for name in Posterior.__dataclass_fields__}
    told = [
        {"summary": s.model_dump(mode="json"), "runs": [run.model_dump(mode="json") for run in r]}
        for s, _, r in strata
    ]
    about = {"key": fit_key(runs), "arrays": _sum(arrays), "strata": json.dumps(told)}
    write_atomically(_folder(study) / FIT.format(key=fit_key(runs)), save(arrays, metadata=about))


def forget_other_fits(study: StudyFolder, keys: Sequence[str]) -> None:
    """Remove kept fits but these."""
    names = {FIT.format(key=key) for key in keys}
    for path in (study.root / FOLDER).glob(FIT.format(key="*")):
        if path.name not in names:
            path.unlink()


def read_suggestion(study: StudyFolder, key: str) -> Suggested | None:
    content = _read(study.root / FOLDER / SUGGESTED, _code()).get(key)
    try:
        return Suggested.model_validate(content) if content else None
    except ValidationError:
        return None


def keep_suggestion(study: StudyFolder, key: str, suggested: Suggested) -> None:
    """Beside those for other intervals, which another horizon may ask for."""
    path = _folder(study) / SUGGESTED
    content = _read(path, _code()) | {key: suggested.model_dump(mode="json")}
    write_json(path, {"key": _code(), "content": dict(sorted(content.items()))})


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


def _sum(arrays: dict[str, Any]) -> str:
    summed = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        summed.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return summed.hexdigest()


def _stratum(number: int, told: dict[str, Any], arrays: dict[str, Any]) -> Stratum:
    own = {name.partition(".")[2]: a for name, a in arrays.items() if name.startswith(f"{number}.")}
    runs = tuple(Run.model_validate(run) for run in told["runs"])
    return StratumFit.model_validate(told["summary"]), Posterior(**own) if own else None, runs


def _read(path: Path, key: str) -> dict[str, Any]:
    """Content of a file with this key; empty for any other."""
    try:
        kept = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(kept, dict) or kept.get("key") != key:
        return {}
    content = kept.get("content")
    return content if isinstance(content, dict) else {}


def _folder(study: StudyFolder) -> Path:
    folder = study.root / FOLDER
    folder.mkdir(exist_ok=True)
    return folder
