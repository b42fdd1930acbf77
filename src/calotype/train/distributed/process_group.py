"""The processes of a run: joining them, sharing gradients, agreeing. One alone runs the same code.

torchrun (or Slurm through it) starts the processes and says who is who in the environment. Knows nothing of
models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from calotype.core.errors import Problem, RequestError
from calotype.spec.recipe import Recipe
from calotype.train.distributed.failure import (
    exit_with_launcher,
    is_rank_loss,
    is_under_torchrun,
    lost_ranks,
)
from calotype.train.distributed.fsdp import sharded
from calotype.train.distributed.rendezvous import rendezvous_store
from calotype.train.tasks.base import DTYPES

# Gloo's threads let go of the last tensors they sent a little later, and need Python's lock for it, which
# torch holds while it waits for them to end: a group that is ended at once may wait for ever. Kept, it ends
# with the process.
_left: list[Any] = []


@dataclass(frozen=True)
class Rank:
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


def apply_elastic_world_size(recipe: Recipe) -> Recipe:
    """The recipe with the number of processes that torchrun started, if it lets torchrun decide."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if not recipe.trainer.elastic or world_size == recipe.num_processes:
        return recipe
    model = recipe.model
    shares = model.global_batch_size // model.micro_batch_size
    if shares % world_size:
        fitting = ", ".join(str(number) for number in range(1, shares + 1) if shares % number == 0)
        rule = f"torchrun started {world_size} processes, which cannot share the {shares} micro-batches of "
        rule += f"{model.micro_batch_size} in model.global_batch_size {model.global_batch_size} evenly"
        raise RequestError([Problem("trainer.elastic", f"{rule}; start one of {fitting}", world_size)])
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    if world_size % devices:
        devices = world_size  # nodes of different sizes: only the product counts
    trainer = recipe.trainer.model_copy(update={"devices": devices, "nodes": world_size // devices})
    return recipe.model_copy(update={"trainer": trainer})


@contextmanager
def init_process_group(recipe: Recipe, device: torch.device | None = None) -> Iterator[Rank]:
    """Join the run that torchrun started, or be the only process; leaves in good order."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if world_size != recipe.num_processes:
        raise RequestError([Problem("trainer.devices", _other_number(recipe, world_size))])
    device = _own_device(device, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if is_under_torchrun():
        exit_with_launcher()
    in_group = world_size > 1 or recipe.trainer.strategy != "auto"
    timeout_s = recipe.trainer.peer_timeout_s
    tuned_before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = recipe.model.tune_convolutions
    try:
        if in_group:
            backend, store = "nccl" if device.type == "cuda" else "gloo", rendezvous_store(rank, world_size)
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s)
            )
        yield Rank(rank, world_size, local_rank, device)
    except RuntimeError as error:
        if in_group and is_rank_loss(error):
            raise lost_ranks(error, rank, world_size, timeout_s) from error
        raise
    finally:
        torch.backends.cudnn.benchmark = tuned_before
        if in_group and dist.is_initialized():
            _left.append(dist.group.WORLD)
            dist.destroy_process_group()


def _own_device(device: torch.device | None, local_rank: int) -> torch.device:
    """A GPU if there is one and nothing was said; of several the one with this process's number."""
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device != torch.device("cuda"):
        return device
    if local_rank >= (there := torch.cuda.device_count()):
        rule = f"this machine has {there} GPUs, none for its process number {local_rank} (from 0)"
        raise RequestError([Problem("trainer.devices", f"{rule}; set it to {there} at most")])
    return torch.device("cuda", local_rank)


def _other_number(recipe: Recipe, world_size: int) -> str:
    asked = f"the recipe asks for {recipe.trainer.devices} devices × {recipe.trainer.nodes} nodes"
    if "WORLD_SIZE" not in os.environ:
        return f"{asked}, and this process is alone; start it on every node with torchrun, or use --launch"
    fix = "make them agree, or let torchrun decide with trainer.elastic=true"
    return f"{asked}, torchrun started {world_size} processes; {fix}"


def wrap_ddp_or_fsdp(network: nn.Module, recipe: Recipe, process: Rank) -> nn.Module:
    """The network with its gradients averaged over the processes, its weights split over them if asked."""
    strategy = _strategy(recipe, process)
    if strategy == "fsdp":
        sharded(network, process.device, process.world_size, _computed_in(recipe))
        return network
    if strategy == "none" or not recipe.trainer.overlap:
        return network
    # Torch would send buffers along with every forward pass; what is trained here has none that change.
    return DistributedDataParallel(
        network,
        device_ids=[process.local_rank] if process.device.type == "cuda" else None,
        gradient_as_bucket_view=recipe.trainer.gradient_as_bucket_view,
    )


def _strategy(recipe: Recipe, process: Rank) -> Literal["none", "ddp", "fsdp"]:
    if recipe.trainer.strategy != "auto":
        return recipe.trainer.strategy
    return "none" if process.world_size == 1 else "ddp"


def _computed_in(recipe: Recipe) -> torch.dtype | None:
    """What split weights travel in, where that is not what they are kept in."""
    if recipe.model.low_precision_weights or recipe.model.precision == "fp32":
        return None
    return DTYPES[recipe.model.precision]


def no_gradient_sync(network: nn.Module, last: bool) -> Any:
    """Between micro-batches of one update gradients stay at home; they travel with the last."""
    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(last)
    if last or not isinstance(network, DistributedDataParallel):
        return nullcontext()
    return network.no_sync()


def sync_gradients_after(parameters: list[nn.Parameter], recipe: Recipe, process: Rank) -> None:
    """Without overlap: average all gradients once the backward pass is over."""
    if _strategy(recipe, process) != "ddp" or recipe.trainer.overlap:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= process.world_size
