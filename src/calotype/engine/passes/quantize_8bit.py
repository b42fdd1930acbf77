"""The matrix products of all transformers in eight bits, as whole numbers (INT8) or as e4m3 (FP8).

A GPU multiplies eight-bit numbers up to twice as fast as sixteen-bit ones, and reads half as much. The norm
or gate before a product writes eight bits straight away, so quantising costs no pass over memory of its own.
Lossy: the picture changes a little; `calotype compare` says by how much. On a CPU it shows the quality alone.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from calotype.engine.kernels import layer_norm as layer
from calotype.engine.kernels.geglu import geglu_quantized
from calotype.engine.kernels.quantize import Kind, Quantized
from calotype.engine.memory_planner import quantized_bytes
from calotype.engine.modules.int8_linear import Int8Linear
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.models.model import Model

_OLDEST: dict[str, tuple[int, int]] = {"int8": (8, 0), "fp8": (8, 9)}
_MULTIPLE = 16
"""Of widths that eight-bit products take."""


def _missing(kind: Kind) -> Callable[[Model], str | None]:
    def missing(model: Model) -> str | None:
        if model.device.type == "cuda":
            found, oldest = torch.cuda.get_device_capability(model.device), _OLDEST[kind]
            if found < oldest:
                have, need = (".".join(map(str, each)) for each in (found, oldest))
                return f"this GPU has compute capability {have}; {kind} products need {need}"
            if kind == "fp8" and model.dtype != torch.bfloat16:
                return "its products give bf16; load the model with --precision bf16"
        width = next((w for w in model.architecture.unet["block_out_channels"] if w % _MULTIPLE), None)
        if width is not None:
            return f"its UNet has a width of {width}, which is no multiple of {_MULTIPLE}"
        return None

    return missing


def _apply(kind: Kind) -> Callable[[NetworkBuilder], None]:
    def layer_norm(
        x: Tensor, norm: nn.LayerNorm, addend: Tensor | None = None, bias: Tensor | None = None
    ) -> tuple[Quantized, Tensor]:
        if addend is None:
            return layer.layer_norm_quantized(x, norm.weight, norm.bias, norm.eps, kind), x
        return layer.add_layer_norm_quantized(
            x, addend, norm.weight, norm.bias, norm.eps, kind, bias_of_residual=bias
        )

    def geglu(x: Tensor) -> Quantized:
        return geglu_quantized(x, kind)

    def apply(assembly: NetworkBuilder) -> None:
        linear = Int8Linear(kind, assembly.model.dtype)
        assembly.on_change.append(linear.refresh)
        assembly.resident_bytes += quantized_bytes(assembly.model.architecture)
        assembly.operations = replace(assembly.operations, linear=linear, layer_norm=layer_norm, geglu=geglu)

    return apply


# Weights are found and quantised as they are met, which no compiler can follow.
UNCOMPILED = ("compile_blocks", "compile_whole", "compiled_ahead")
INT8 = Pass(
    "int8",
    "lossy",
    _missing("int8"),
    _apply("int8"),
    after=(NATIVE_UNET.name,),
    excludes=("fp8", "int8_static", *UNCOMPILED),
)
FP8 = Pass(
    "fp8",
    "lossy",
    _missing("fp8"),
    _apply("fp8"),
    after=(NATIVE_UNET.name,),
    excludes=("int8", "int8_static", *UNCOMPILED),
)
