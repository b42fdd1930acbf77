"""Normalisation, what is added before it and the activation behind it, in one pass over memory.

Between the matrix products of a UNet memory is the limit: each operation by itself reads and writes the whole
picture. Triton kernels for channels-last pictures read it once or twice and write it once, skip connections
are put together on the way, and the sums of a residual stream are done by the norm that reads them.
"""

from dataclasses import replace

from torch import Tensor, nn

from calotype.engine.kernels import add as sums
from calotype.engine.kernels import group_norm as group
from calotype.engine.kernels import layer_norm as layer
from calotype.engine.kernels.upsample import upsample_nearest2x
from calotype.engine.modules import ops
from calotype.engine.modules.ops import DeferredSum
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET, no_requirements


def group_norm(
    x: DeferredSum,
    norm: nn.GroupNorm,
    *,
    silu: bool,
    shift: Tensor | None = None,
    factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """With a factor in e4m3, multiplied by it."""
    parameters = (norm.weight, norm.bias, norm.num_groups, norm.eps)
    if shift is not None:
        whole = x.materialize(sums.add)
        return group.group_norm(whole, *parameters, silu=silu, shift=shift, factor=factor), whole
    return group.add_group_norm(x.x, x.addend, x.bias, *parameters, silu=silu, factor=factor)


def group_norm_concat(
    x: DeferredSum, skip: Tensor, norm: nn.GroupNorm, *, factor: float | None = None
) -> tuple[Tensor, Tensor]:
    parameters = (norm.weight, norm.bias, norm.num_groups, norm.eps)
    return group.group_norm_concat(
        x.x, skip, *parameters, silu=True, addend=x.addend, extra=x.bias, factor=factor
    )


def layer_norm(
    x: Tensor, norm: nn.LayerNorm, addend: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if addend is None:
        return layer.layer_norm(x, norm.weight, norm.bias, norm.eps), x
    return layer.add_layer_norm(x, addend, norm.weight, norm.bias, norm.eps, bias_of_residual=bias)


def upsample(x: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = x.shape[-2:]
    if size == (2 * height, 2 * width):
        return upsample_nearest2x(x)
    return ops.upsample(x, size)


def _apply(assembly: NetworkBuilder) -> None:
    assembly.operations = replace(
        assembly.operations,
        group_norm=group_norm,
        joined_group_norm=group_norm_concat,
        layer_norm=layer_norm,
        add=sums.add,
        enlarged=upsample,
    )


FUSED_NORMS = Pass("fused_norms", "rounding", no_requirements, _apply, after=(NATIVE_UNET.name,))
