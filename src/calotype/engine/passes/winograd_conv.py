"""3×3 convolutions with a quarter of the multiplications, on a CPU.

They are three quarters of the embedded model's arithmetic, and a CPU does little else at a time. In single
precision it is about as exact as the usual way: against double precision, two or three times its error.
"""

from dataclasses import replace

import torch

from calotype.engine.memory_planner import WINOGRAD_FACTOR, winograd_bytes
from calotype.engine.modules.winograd import Winograd
from calotype.engine.passes import NetworkBuilder, Pass
from calotype.engine.passes.channels_last import CHANNELS_LAST
from calotype.engine.passes.native_unet import NATIVE_UNET
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return None if model.device.type == "cpu" else "a GPU's own convolutions are faster"


def _apply(assembly: NetworkBuilder) -> None:
    convolution = Winograd()
    assembly.prepare.append(convolution.prepare)
    assembly.on_change.append(convolution.refresh)
    if assembly.model.dtype == torch.float32:
        assembly.resident_bytes += winograd_bytes(assembly.model.architecture)
        assembly.activations *= WINOGRAD_FACTOR
    assembly.operations = replace(assembly.operations, convolution=convolution)


WINOGRAD_CONV = Pass("winograd", "rounding", _missing, _apply, after=(NATIVE_UNET.name, CHANNELS_LAST.name))
