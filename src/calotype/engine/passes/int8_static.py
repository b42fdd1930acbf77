"""INT8 with scales known beforehand where a norm feeds a product, and row by row elsewhere.

What a norm writes has the same range in every picture, so one scale for a whole layer, found by
`calotype engine calibrate`, does nearly as well as one for each row, and no row has to be read to its end
before it can be written. Channels that are larger than others are divided first, and the weights multiplied,
so that both are about as hard to round (SmoothQuant's way); the norm's own factors do that for nothing. What
attention and the gate write has outliers that no scale of a layer fits: those stay row by row, as in `int8`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from calotype.core.errors import CalotypeError
from calotype.engine.kernels import layer_norm as layer
from calotype.engine.kernels.geglu import geglu_quantized
from calotype.engine.kernels.quantize import LARGEST, Quantized
from calotype.engine.memory_planner import quantized_bytes
from calotype.engine.modules.int8_linear import Int8Linear
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.fused_norms import FUSED_NORMS
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.engine.passes.quantize_8bit import INT8, UNCOMPILED
from calotype.engine.quantization import calibration_data
from calotype.models.model import Model

EVENNESS = 0.5
"""How much of the channels' differences goes to the weights: 0 none, 1 all."""
_SMALLEST = 1e-5


@dataclass(frozen=True)
class Fixed:
    """A norm that writes eight bits with one scale."""

    norm: nn.LayerNorm
    divisors: Tensor
    """Of its channels."""
    scale: float
    weight: Tensor
    bias: Tensor

    @torch.no_grad()
    def refresh(self) -> None:
        """The norm has changed: take up its numbers, in place."""
        self.weight.copy_(self.norm.weight.float() / self.divisors)
        self.bias.copy_(self.norm.bias.float() / self.divisors)


@torch.no_grad()
def fixed_scales(norm: nn.LayerNorm, readers: Sequence[nn.Linear], largest: Tensor) -> Fixed:
    """A norm behind which each channel was this large at most, for the layers that read it."""
    largest = largest.to(norm.weight.device).clamp_min(_SMALLEST)
    columns = torch.stack([each.weight.float().abs().amax(0) for each in readers]).amax(0)
    divisors = largest**EVENNESS / columns.clamp_min(_SMALLEST) ** (1 - EVENNESS)
    scale = float((largest / divisors).max()) / LARGEST["int8"]
    made = Fixed(norm, divisors, scale, torch.empty_like(divisors), torch.empty_like(divisors))
    made.refresh()
    return made


def _missing(model: Model) -> str | None:
    lacking = INT8.missing(model)
    if lacking:
        return lacking
    try:
        calibration_data.load_ranges(model)
    except CalotypeError as error:
        return str(error)
    return None


def _apply(assembly: NetworkBuilder) -> None:
    model, ranges = assembly.model, calibration_data.load_ranges(assembly.model)
    known = {
        norm: fixed_scales(norm, readers, ranges[n])
        for n, norm, readers in calibration_data.norms_of(model.unet)
    }
    divided = [
        (reader, known[norm].divisors)
        for _, norm, readers in calibration_data.norms_of(model.unet)
        for reader in readers
    ]
    linear = Int8Linear("int8", model.dtype, divided)

    def layer_norm(
        x: Tensor, norm: nn.LayerNorm, addend: Tensor | None = None, bias: Tensor | None = None
    ) -> tuple[Quantized, Tensor]:
        one = known[norm]
        if addend is None:
            made = layer.layer_norm_quantized(x, one.weight, one.bias, norm.eps, "int8", scale=one.scale)
            return made, x
        return layer.add_layer_norm_quantized(
            x, addend, one.weight, one.bias, norm.eps, "int8", bias_of_residual=bias, scale=one.scale
        )

    assembly.on_change += [*(one.refresh for one in known.values()), linear.refresh]
    assembly.resident_bytes += quantized_bytes(model.architecture)
    assembly.operations = replace(
        assembly.operations, linear=linear, layer_norm=layer_norm, geglu=lambda x: geglu_quantized(x, "int8")
    )


# After the norms of others: its weights hold for what its own write and nothing else.
INT8_STATIC = Pass(
    "int8_static",
    "lossy",
    _missing,
    _apply,
    after=(NATIVE_UNET.name, FUSED_NORMS.name),
    excludes=("int8", "fp8", *UNCOMPILED),
)
