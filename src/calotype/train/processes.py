"""The processes of a run: joining them, sharing gradients, agreeing. One alone runs the same code.

torchrun (or Slurm through it) starts the processes and says who is who in the environment. Knows nothing of
models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from calotype.core.errors import Problem, RequestError
from calotype.spec.recipe import Recipe


@dataclass(frozen=True)
class Process:
    """This process's place among the others."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        if self.world_size > 1:
            dist.barrier()

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all processes."""
        if self.world_size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.world_size

    def gathered(self, names: Sequence[str]) -> list[str]:
        """What all processes name, in the order of the processes; all get the same answer."""
        if self.world_size == 1:
            return list(names)
        found: list[list[str]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(found, list(names))
        return [name for each in found for name in each]

    def any(self, flag: bool) -> bool:
        """Whether any process says so; all get the same answer."""
        if self.world_size == 1:
            return flag
        asked = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())


@contextmanager
def joined(recipe: Recipe, device: torch.device | None = None) -> Iterator[Process]:
    """Join the run that torchrun started, or be the only process; leaves in good order."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if world_size != recipe.num_processes:
        asked = f"{recipe.trainer.devices} devices × {recipe.trainer.nodes} nodes"
        rule = f"the recipe asks for {asked}, torchrun started {world_size} processes; make them agree"
        raise RequestError([Problem("trainer.devices", rule)])
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device == torch.device("cuda"):
        device = torch.device("cuda", local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Process(rank, world_size, local_rank, device)
    finally:
        if world_size > 1:
            dist.destroy_process_group()


def shared(network: nn.Module, recipe: Recipe, process: Process) -> nn.Module:
    """The network with its gradients averaged over the processes."""
    if process.world_size == 1 or not recipe.trainer.overlap:
        return network
    return DistributedDataParallel(
        network,
        device_ids=[process.local_rank] if process.device.type == "cuda" else None,
        gradient_as_bucket_view=recipe.trainer.gradient_as_bucket_view,
        broadcast_buffers=False,
    )


def without_exchange(network: nn.Module, last: bool) -> Any:
    """Between micro-batches of one update gradients stay at home; they travel with the last."""
    if last or not isinstance(network, DistributedDataParallel):
        return nullcontext()
    return network.no_sync()


def exchange_after(parameters: list[nn.Parameter], recipe: Recipe, process: Process) -> None:
    """Without overlap: average all gradients once the backward pass is over."""
    if process.world_size == 1 or recipe.trainer.overlap:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= process.world_size
