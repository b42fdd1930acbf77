"""Convolutions in what is compiled, on a CPU, by the library that uses all of its vector units.

torch's own are by that library too, but bring their weights into its order at each call. Here that is done
once, and 3×3 convolutions of enough places take a quarter of the multiplications, as under `winograd`; the
sums for that pay only where a compiler joins them.
"""

from dataclasses import replace

import torch
from torch import nn

from calotype.engine.memory_planner import wide_convolution_bytes
from calotype.engine.modules.onednn_conv import WideConvolutions, packed_weights
from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.channels_last import CHANNELS_LAST
from calotype.engine.passes.fp8_conv import FP8_CONVOLUTIONS
from calotype.engine.passes.onednn_linear import WIDE_PRODUCTS
from calotype.engine.passes.winograd_conv import WINOGRAD


def _apply(assembly: Assembly) -> None:
    if assembly.model.dtype != torch.float32:
        return  # torch's are as fast
    convolution = WideConvolutions()

    def prepare(network: nn.Module) -> None:
        # Decoders are not compiled.
        if network is assembly.model.unet:
            convolution.prepare(network)

    assembly.prepare.append(prepare)
    assembly.on_change.append(convolution.refresh)
    assembly.hand_in = packed_weights
    assembly.resident_bytes += wide_convolution_bytes(assembly.model.architecture)
    assembly.operations = replace(assembly.operations, convolution=convolution)


WIDE_CONVOLUTIONS = Pass(
    "wide_convolutions",
    "rounding",
    WIDE_PRODUCTS.missing,
    _apply,
    after=(CHANNELS_LAST.name, WIDE_PRODUCTS.name),
    excludes=(WINOGRAD.name, FP8_CONVOLUTIONS.name),
)
