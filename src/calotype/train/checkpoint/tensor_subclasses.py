"""Tensors made of other tensors, as quantised optimizers keep them: taken apart and put together again.

A checkpoint names such a class by a word from the table below and never by a module, so that no file decides
what is imported. Knows torch's protocol for wrappers, nothing of what the classes do.
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
    """Where a class is found, and what brings it when it is not there."""

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
    """The table's word for the tensor's class, or None when it is not a wrapper we know."""
    kind = type(tensor)
    for word, known in WRAPPERS.items():
        if (kind.__module__, kind.__qualname__) == (known.module, known.name):
            return word
    return None


def take_apart(tensor: Any) -> tuple[dict[str, Tensor], Any]:
    """The tensors inside, by name, and the plain values beside them."""
    names, context = tensor.__tensor_flatten__()
    return {name: getattr(tensor, name) for name in names}, context


def put_together(word: str, parts: Mapping[str, Tensor], context: object) -> Tensor:
    """The wrapper that `take_apart` took apart."""
    known = WRAPPERS[word]
    try:
        kind = getattr(import_module(known.module), known.name)
    except (ImportError, AttributeError) as error:
        raise NotFoundError(
            f"the checkpoint holds {word}, which is not here ({error}): {known.install}"
        ) from None
    return kind.__tensor_unflatten__(dict(parts), context, None, None)
