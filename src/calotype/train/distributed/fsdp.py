"""Weights split over the processes (FSDP2): splitting a network, gathering tensors whole, handing them out.

What is not split passes through all of it unchanged, so that callers need not ask. Knows nothing of losses,
optimizers and files.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

# Each is gathered as one when its turn comes and let go after it; what lies between them belongs to the root.
BLOCKS = ("BasicTransformerBlock", "ResnetBlock2D")


def sharded(network: nn.Module, device: torch.device, world_size: int, dtype: torch.dtype | None) -> None:
    """Leave each process its part of every parameter; `dtype` is what they travel and compute in, if another.

    Gradients are averaged in fp32 whatever they were computed in.
    """
    mesh = init_device_mesh(device.type, (world_size,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None)
    blocks = [module for module in network.modules() if type(module).__name__ in BLOCKS]
    for module in (*blocks, network):
        # Torch would keep the root's parameters whole between forward and backward; pictures made in between
        # steps have no backward, and the averages are swapped in and out of the parts.
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=True)


def own_part(tensor: Tensor) -> Tensor:
    """This process's part, in the same memory."""
    if not isinstance(tensor, DTensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def whole(tensor: Tensor, keep: bool) -> Tensor | None:
    """The full tensor on the CPU where it is to be kept, None elsewhere; all processes ask together."""
    if not isinstance(tensor, DTensor):
        return tensor
    full = tensor.full_tensor()
    return full.cpu() if keep else None


def split(full: Tensor, like: Tensor) -> Tensor:
    """A full tensor, which every process has, split as `like` is; nothing travels."""
    if not isinstance(like, DTensor):
        return full
    return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)


def joined_part(part: Tensor, like: Tensor) -> Tensor:
    """What processes hold part by part beside `like`, as one split tensor."""
    if not isinstance(like, DTensor):
        return part
    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
