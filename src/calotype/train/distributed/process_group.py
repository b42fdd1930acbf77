"""The ranks of a run: join the process group, synchronize gradients, agree on flags; also with a single rank.

torchrun (or Slurm through it) starts the processes and sets their ranks in the environment.
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

# Gloo's threads free the last tensors they sent slightly later and need the GIL for it, which torch holds
# while it waits for these threads to end: destroying a group at once can deadlock. A reference keeps the
# group until the process ends.
_ended_groups: list[Any] = []


@dataclass(frozen=True)
class Rank:
    """The rank of this process among those of the run, and its device."""

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
        """The mean over all ranks."""
        if self.world_size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.world_size

    def gathered(self, names: Sequence[str]) -> list[str]:
        """The names of all ranks, in the order of the ranks; every rank gets the same list."""
        if self.world_size == 1:
            return list(names)
        gathered_names: list[list[str]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(gathered_names, list(names))
        return [name for rank_names in gathered_names for name in rank_names]

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank; every rank gets the same answer."""
        if self.world_size == 1:
            return flag
        any_flag = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(any_flag, op=dist.ReduceOp.MAX)
        return bool(any_flag.item())


def apply_elastic_world_size(recipe: Recipe) -> Recipe:
    """The recipe with the number of processes that torchrun started, if `trainer.elastic` is set."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if not recipe.trainer.elastic or world_size == recipe.num_processes:
        return recipe
    model = recipe.model
    micro_batches = model.global_batch_size // model.micro_batch_size
    if micro_batches % world_size:
        fitting = ", ".join(
            str(number) for number in range(1, micro_batches + 1) if micro_batches % number == 0
        )
        rule = f"torchrun started {world_size} processes, which cannot share the {micro_batches} "
        rule += f"micro-batches of {model.micro_batch_size} in model.global_batch_size "
        rule += f"{model.global_batch_size} evenly"
        raise RequestError([Problem("trainer.elastic", f"{rule}; start one of {fitting}", world_size)])
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    if world_size % devices:
        devices = world_size  # nodes of different sizes: only the product counts
    trainer = recipe.trainer.model_copy(update={"devices": devices, "nodes": world_size // devices})
    return recipe.model_copy(update={"trainer": trainer})


@contextmanager
def init_process_group(recipe: Recipe, device: torch.device | None = None) -> Iterator[Rank]:
    """Join the run that torchrun started, or be its only rank; cleans up at the end."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if world_size != recipe.num_processes:
        raise RequestError([Problem("trainer.devices", _world_size_mismatch(recipe, world_size))])
    device = _rank_device(device, local_rank)
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
            _ended_groups.append(dist.group.WORLD)
            dist.destroy_process_group()


def _rank_device(device: torch.device | None, local_rank: int) -> torch.device:
    """The device given, else a GPU if there is one; of several GPUs the one with this local rank."""
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device != torch.device("cuda"):
        return device
    if local_rank >= (num_gpus := torch.cuda.device_count()):
        rule = f"this machine has {num_gpus} GPUs, none for its process number {local_rank} (from 0)"
        raise RequestError([Problem("trainer.devices", f"{rule}; set it to {num_gpus} at most")])
    return torch.device("cuda", local_rank)


def _world_size_mismatch(recipe: Recipe, world_size: int) -> str:
    requested = f"the recipe asks for {recipe.trainer.devices} devices × {recipe.trainer.nodes} nodes"
    if "WORLD_SIZE" not in os.environ:
        return (
            f"{requested}, and only this process runs; start it on every node with torchrun, or use --launch"
        )
    fix = "make them agree, or let torchrun decide with trainer.elastic=true"
    return f"{requested}, torchrun started {world_size} processes; {fix}"


def wrap_ddp_or_fsdp(network: nn.Module, recipe: Recipe, process: Rank) -> nn.Module:
    """Wrap the network in DDP or shard it with FSDP, as the recipe's strategy says."""
    strategy = _strategy(recipe, process)
    if strategy == "fsdp":
        sharded(network, process.device, process.world_size, _communication_dtype(recipe))
        return network
    if strategy == "none" or not recipe.trainer.overlap:
        return network
    # DDP broadcasts buffers in every forward pass by default; the trained networks have none that change.
    return DistributedDataParallel(
        network,
        device_ids=[process.local_rank] if process.device.type == "cuda" else None,
        gradient_as_bucket_view=recipe.trainer.gradient_as_bucket_view,
    )


def _strategy(recipe: Recipe, process: Rank) -> Literal["none", "ddp", "fsdp"]:
    if recipe.trainer.strategy != "auto":
        return recipe.trainer.strategy
    return "none" if process.world_size == 1 else "ddp"


def _communication_dtype(recipe: Recipe) -> torch.dtype | None:
    """The communication dtype of sharded weights, if it differs from their storage dtype."""
    if recipe.model.low_precision_weights or recipe.model.precision == "fp32":
        return None
    return DTYPES[recipe.model.precision]


def no_gradient_sync(network: nn.Module, last: bool) -> Any:
    """Skip gradient synchronization between the micro-batches of one update, except after the last."""
    if isinstance(network, FSDPModule):
        network.set_requires_gradient_sync(last)
    if last or not isinstance(network, DistributedDataParallel):
        return nullcontext()
    return network.no_sync()


def sync_gradients_after(parameters: list[nn.Parameter], recipe: Recipe, process: Rank) -> None:
    """Without overlap: average all gradients after the backward pass."""
    if _strategy(recipe, process) != "ddp" or recipe.trainer.overlap:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= process.world_size
