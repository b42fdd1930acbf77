"""Take apart and rebuild tensor subclasses that wrap other tensors, such as quantized optimizer states.

A checkpoint names such a class by a key of the table below and never by a module, so that no file decides
what is imported. It uses torch's protocol for wrapper subclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor

from calotype.core.errors import NotFoundError


@dataclass(frozen=True)
class WrapperClass:
    """The module and name of a class, and how to install it."""

    module: str
    name: str
    install: str


_TRAIN_EXTRA = "pip install 'calotype[train]'"

WRAPPERS: dict[str, WrapperClass] = {
    "torchao.OptimState8bit": WrapperClass("torchao.optim.subclass_8bit", "OptimState8bit", _TRAIN_EXTRA),
    "torchao.OptimState4bit": WrapperClass("torchao.optim.subclass_4bit", "OptimState4bit", _TRAIN_EXTRA),
    "torchao.OptimStateFp8": WrapperClass("torchao.optim.subclass_fp8", "OptimStateFp8", _TRAIN_EXTRA),
}


def wrapper_word(tensor: Tensor) -> str | None:
    """The table's key for the tensor's class, or None if it is not a known wrapper."""
    kind = type(tensor)
    for key, known in WRAPPERS.items():
        if (kind.__module__, kind.__qualname__) == (known.module, known.name):
            return key
    return None


def take_apart(tensor: Any) -> tuple[dict[str, Tensor], Any]:
    """The inner tensors by name, and the plain values beside them."""
    names, context = tensor.__tensor_flatten__()
    return {name: getattr(tensor, name) for name in names}, context


def put_together(key: str, parts: Mapping[str, Tensor], context: object) -> Tensor:
    """Rebuild the wrapper that `take_apart` took apart."""
    known = WRAPPERS[key]
    try:
        kind = getattr(import_module(known.module), known.name)
    except (ImportError, AttributeError) as error:
        raise NotFoundError(
            f"the checkpoint holds {key}, which is not installed ({error}): {known.install}"
        ) from None
    return kind.__tensor_unflatten__(dict(parts), context, None, None)
