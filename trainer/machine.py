"""Memory that this machine still has. Importing this needs no torch."""

from __future__ import annotations

from pathlib import Path

from trainer.models.memory import Gpus


def free_memory(device: str = "cpu") -> tuple[int | None, int | None]:
    """Bytes that a run may still take on `device`, and the GPU's own size (None on a CPU)."""
    if not device.startswith("cuda"):
        return host_memory(), None
    import torch

    free, size = torch.cuda.mem_get_info(device)
    return free, size


def visible_gpus() -> Gpus | None:
    """Free memory of this process's first GPU, and how many it sees; None without any."""
    import torch

    if not torch.cuda.is_available():
        return None
    return Gpus(torch.cuda.mem_get_info("cuda:0")[0], torch.cuda.device_count())


def host_memory(*, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that processes may still take: what Linux calls available, or less where a cgroup sets a limit.

    None where the system does not tell.
    """
    found = [_meminfo(proc / "meminfo"), *(_cgroup_room(folder) for folder in _own_cgroups(proc, cgroup))]
    known = [room for room in found if room is not None]
    return max(0, min(known)) if known else None


def _meminfo(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _own_cgroups(proc: Path, root: Path) -> list[Path]:
    """Folders of this process's memory cgroup and those above it, whose limits all hold."""
    try:
        entries = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for entry in entries:
        _, controllers, path = entry.split(":", 2)
        if controllers in ("", "memory"):
            base = root / controllers if controllers else root
            own = base / path.lstrip("/")
            folders += [folder for folder in (own, *own.parents) if folder.is_relative_to(base)]
    return folders


def _cgroup_room(folder: Path) -> int | None:
    """What a cgroup's limit leaves; cached file pages do not count, the kernel drops them first."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            allowed, taken = int((folder / limit).read_text()), int((folder / used).read_text())
            statistics = dict(
                line.rsplit(" ", 1) for line in (folder / "memory.stat").read_text().splitlines()
            )
        except (OSError, ValueError):  # "max" is no number: there is no limit
            continue
        inactive = statistics.get("total_inactive_file", statistics.get("inactive_file", "0"))
        return allowed - taken + int(inactive)
    return None
