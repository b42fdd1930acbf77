"""Attention of places to a prompt by a kernel of our own, which has a head's keys and values at hand.

They are few: what takes time is reading queries and writing results, which it does once, in the widest
pieces. Not measured yet. What does not suit it (masks, long prompts, other heads) is done as before.
"""

from dataclasses import replace

from torch import Tensor

from calotype.engine.kernels import prompt_attention as own
from calotype.engine.passes import Assembly, Pass
from calotype.engine.passes.own_forward import OWN_FORWARD
from calotype.models.model import Model


def _missing(model: Model) -> str | None:
    return None if model.device.type == "cuda" else "its kernel is for GPUs"


def _apply(assembly: Assembly) -> None:
    other = assembly.operations.attention

    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None and own.suits(query, key, value):
            return own.attention(query, key, value)
        return other(query, key, value, mask)

    assembly.operations = replace(assembly.operations, attention=attention)


PROMPT_ATTENTION = Pass("prompt_attention", "rounding", _missing, _apply, after=(OWN_FORWARD.name,))
