"""Shard weights over ranks with FSDP2: shard a network, gather full tensors, and redistribute them.

All functions return tensors that are not sharded unchanged, so that callers need not check.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

# Each block is gathered as a unit for its forward pass and freed after it; the rest belongs to the root.
BLOCKS = ("BasicTransformerBlock", "ResnetBlock2D")


def sharded(network: nn.Module, device: torch.device, world_size: int, dtype: torch.dtype | None) -> None:
    """Shard every parameter over the ranks; `dtype`, if given, is the dtype of communication and compute.

    Gradients are averaged in fp32 whatever they were computed in.
    """
    mesh = init_device_mesh(device.type, (world_size,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None)
    blocks = [module for module in network.modules() if type(module).__name__ in BLOCKS]
    for module in (*blocks, network):
        # torch would keep the root's parameters gathered between forward and backward, but sampling between
        # steps has no backward, and the averages are swapped into the shards.
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=True)


def own_part(tensor: Tensor) -> Tensor:
    """This rank's shard, in the same memory."""
    if not isinstance(tensor, DTensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def whole(tensor: Tensor, keep: bool) -> Tensor | None:
    """The full tensor on the CPU if `keep`, else None; all ranks call it together."""
    if not isinstance(tensor, DTensor):
        return tensor
    full = tensor.full_tensor()
    return full.cpu() if keep else None


def split(full: Tensor, like: Tensor) -> Tensor:
    """Shard a full tensor that every rank has, like `like`; no communication."""
    if not isinstance(like, DTensor):
        return full
    return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)


def joined_part(part: Tensor, like: Tensor) -> Tensor:
    """The shards of all ranks as one DTensor, placed like `like`."""
    if not isinstance(like, DTensor):
        return part
    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
