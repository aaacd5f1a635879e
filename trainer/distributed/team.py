"""The processes of one run: the first leads (engine, task, files), the others do what it announces.

An announcement is a safetensors message, never pickled. Every process then calls the same method with the same
arguments, so that the collectives in it meet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.errors import EnvironmentFailedError
from trainer.loop.allocator import give_memory_back
from trainer.loop.rollouts import Rollouts

PATIENCE = timedelta(days=1)
"""How long processes wait for each other: the leader samples and scores whole cycles between two announcements. A
process that dies is noticed at once, by its closed connections or by who started it."""
STOP = "stop"


@dataclass(frozen=True)
class Order:
    """What the leader announces: a method of the learner and its arguments."""

    method: str
    rollouts: Rollouts | None
    arguments: dict[str, Any]


class Team:
    """This process's place among those of the run."""

    def __init__(self, rank: int, size: int, device: str) -> None:
        """The process group must have been started, see `meeting`."""
        self.rank, self.size, self.device = rank, size, device
        self.mesh: DeviceMesh = init_device_mesh(torch.device(device).type, (size,))

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def announce(self, method: str, rollouts: Rollouts | None = None, **arguments: Any) -> None:
        """Tell the others to call `method` of their learner; says nothing where this process does not lead."""
        if self.leads:
            self._broadcast(encode(Order(method, rollouts, arguments)))

    def await_order(self) -> Order:
        """What the leader announces next, its tensors on this process's device."""
        order = decode(self._broadcast(None))
        if order.rollouts is None:
            return order
        return Order(order.method, order.rollouts.to(self.device), order.arguments)

    def total(self, tensor: Tensor) -> Tensor:
        """Sum over all processes."""
        with lost_connections():
            dist.all_reduce(tensor)
        return tensor

    def _broadcast(self, message: bytes | None) -> bytes:
        """On the CPU, whatever the device: a GPU must not spin while the leader samples."""
        with lost_connections():
            length = torch.tensor([0 if message is None else len(message)])
            dist.broadcast(length, 0)
            content = torch.empty(int(length), dtype=torch.uint8)
            if message is not None:
                content = torch.frombuffer(bytearray(message), dtype=torch.uint8)
            dist.broadcast(content, 0)
            return content.numpy().tobytes() if message is None else message


def encode(order: Order) -> bytes:
    """As safetensors; everything but tensors is JSON in its metadata."""
    rollouts = {} if order.rollouts is None else order.rollouts.__dict__
    content = json.dumps({"method": order.method, "arguments": order.arguments})
    return save({name: t.cpu().contiguous() for name, t in rollouts.items()}, metadata={"order": content})


def decode(message: bytes) -> Order:
    """Inverse of `encode`; tensors are on the CPU."""
    header = json.loads(message[8 : 8 + int.from_bytes(message[:8], "little")])
    content = json.loads(header["__metadata__"]["order"])
    tensors = {name: tensor.clone() for name, tensor in load(message).items()}
    return Order(content["method"], Rollouts(**tensors) if tensors else None, content["arguments"])


@contextmanager
def meeting(rank: int, size: int, device: str, *, store: str | None = None) -> Iterator[Team]:
    """Join the process group, and leave it at the end. `store`: a file to meet at; left out: torchrun's variables."""
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        give_memory_back()
    with lost_connections():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            rank=rank,
            world_size=size,
            timeout=PATIENCE,
            init_method="env://" if store is None else f"file://{store}",
        )
    try:
        yield Team(rank, size, device)
    finally:
        dist.destroy_process_group()


def from_torchrun() -> tuple[int, int, int]:
    """(rank, size, rank on this machine) as torchrun tells them; a process alone without it."""
    return tuple(
        int(os.environ.get(n, d)) for n, d in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )  # type: ignore[return-value]


@contextmanager
def lost_connections() -> Iterator[None]:
    """Turn what torch raises when a process is gone into an EnvironmentFailedError."""
    try:
        yield
    except dist.DistError as error:
        raise gone(error) from error
    except RuntimeError as error:
        if not any(sign in str(error).lower() for sign in ("connection", "timed out", "timeout")):
            raise
        raise gone(error) from error


def gone(error: Exception) -> EnvironmentFailedError:
    """The error for a process that left the run."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return EnvironmentFailedError(
        f"a process of the run is gone ({reason}): run the same command again, it continues from the last checkpoint"
    )
