"""`torchrun --nproc-per-node N -m trainer RUN.toml --out FOLDER`: a run on several GPUs, or alone without torchrun."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from pydantic import ValidationError

from trainer.config import RunConfig
from trainer.errors import ConfigError, EnvironmentFailedError, TrainerError
from trainer.processes import current_folder_last


def main(arguments: list[str]) -> int:
    """Exit code: 0, 2 for configuration, 5 when the machine failed."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__)
    parser.add_argument(
        "run", type=Path, metavar="RUN.toml", help="configuration of the run, like trainer.toml"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the run; the policy is saved in it"
    )
    options = parser.parse_args(arguments)
    current_folder_last()
    try:
        _run(_read(options.run), options.out)
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 5 if isinstance(error, EnvironmentFailedError) else 2
    return 0


def _read(path: Path) -> RunConfig:
    try:
        return RunConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _run(config: RunConfig, folder: Path) -> None:
    import torch

    from trainer.distributed.launch import device_of, follow
    from trainer.distributed.team import from_torchrun, meeting
    from trainer.loop.train import train
    from trainer.models.memory import memory_errors

    rank, size, here = from_torchrun()
    device = device_of(here, "cuda" if torch.cuda.is_available() else "cpu")
    with memory_errors(config):
        if size == 1:
            print(train(config, folder, policy_folder=folder / "policy").model_dump_json())
            return
        with meeting(rank, size, device) as team:
            if team.leads:
                summary = train(config, folder, device=device, policy_folder=folder / "policy", team=team)
                print(summary.model_dump_json())
            else:
                follow(config, folder, team)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
