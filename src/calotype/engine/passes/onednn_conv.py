"""Convolutions in what is compiled, on a CPU, by the library that uses all of its vector units.

torch's own are by that library too, but bring their weights into its order at each call. Here that is done
once, and 3×3 convolutions of enough places take a quarter of the multiplications, as under `winograd`; the
sums for that pay only where a compiler joins them.
"""

from dataclasses import replace

import torch
from torch import nn

from calotype.engine.memory_planner import onednn_conv_bytes
from calotype.engine.modules.onednn_conv import OneDnnConvs, pack_weights
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.channels_last import CHANNELS_LAST
from calotype.engine.passes.fp8_conv import FP8_CONV
from calotype.engine.passes.onednn_linear import ONEDNN_LINEAR
from calotype.engine.passes.winograd_conv import WINOGRAD_CONV


def _apply(assembly: NetworkBuilder) -> None:
    if assembly.model.dtype != torch.float32:
        return  # torch's are as fast
    convolution = OneDnnConvs()

    def prepare(network: nn.Module) -> None:
        # Decoders are not compiled.
        if network is assembly.model.unet:
            convolution.prepare(network)

    assembly.prepare.append(prepare)
    assembly.on_change.append(convolution.refresh)
    assembly.hand_in = pack_weights
    assembly.resident_bytes += onednn_conv_bytes(assembly.model.architecture)
    assembly.operations = replace(assembly.operations, convolution=convolution)


ONEDNN_CONV = Pass(
    "wide_convolutions",
    "rounding",
    ONEDNN_LINEAR.missing,
    _apply,
    after=(CHANNELS_LAST.name, ONEDNN_LINEAR.name),
    excludes=(WINOGRAD_CONV.name, FP8_CONV.name),
)
