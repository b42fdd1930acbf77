"""Attention of places to each other by a kernel of our own, written for Hopper.

It should help because cuDNN's, the fastest of torch's there, leaves room: about 370 TFLOP/s at heads of 64
channels, a sixth of SDXL's evaluation at batch 8, and heads of 40 are multiplied as if they had 64. Ours has
the tensor cores multiply while shares are worked out, and can leave out most of what a head of 40 does not
have. In no preset until it has been measured: `python -m tests.gpu.kernels --only "attention"`. What does not
suit it (prompts, masks, few places, other heads) is done as before.
"""

from dataclasses import replace

import torch
from torch import Tensor

from calotype.engine.kernels import attention as own
from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.own_forward import OWN_FORWARD
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    need = ".".join(map(str, own.HOPPER))
    if model.device.type != "cuda":
        return f"its kernel is for GPUs of compute capability {need}; this is a {model.device.type.upper()}"
    found = torch.cuda.get_device_capability(model.device)
    if found != own.HOPPER:
        have = ".".join(map(str, found))
        return f"this GPU has compute capability {have}; its kernel is for {need}"
    if model.dtype not in own.DTYPES:
        return "its kernel is for half precision; load the model with --precision fp16 or bf16"
    return None


def _apply(assembly: Assembly) -> None:
    other = assembly.operations.attention

    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None and own.suits(query, key, value):
            return own.attention(query, key, value)
        return other(query, key, value, mask)

    assembly.operations = replace(assembly.operations, attention=attention)


OWN_ATTENTION = Pass("own_attention", "rounding", _missing, _apply, after=(OWN_FORWARD.name,))
