"""Flatten a nested state into named tensors and a plain JSON skeleton, and restore it exactly; no pickle.

A restored state has the same container types, key order and key types, float bits, dtypes, shapes, strides of
dense tensors (an optimizer's kernels require those of its parameters), and shared tensors. Devices and
gradients are not stored: tensors are restored on the CPU, an OrderedDict as a dict, a torch.Size as a tuple.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calotype.models.files.dtypes import SAFETENSORS_NAMES
from calotype.models.files.safetensors_layout import broken_name_rule
from calotype.train.checkpoint.tensor_subclasses import put_together, take_apart, wrapper_word

_MAX_PLAIN_INT = 2**63
# Far below the recursion limit of Python's JSON module, so that it can be read at any stack depth.
_MAX_DEPTH = 100


@dataclass(frozen=True)
class FlatState:
    """A state's tensors by name, and everything else as JSON that refers to them."""

    tensors: Mapping[str, Tensor]
    skeleton: object


def flatten(state: object) -> FlatState:
    """Flatten a state. The tensors are not copied: copy them if the state changes later."""
    flattener = _Flattener()
    skeleton = flattener.encode(state, ())
    return FlatState(flattener.tensors, skeleton)


def restore(flat: FlatState) -> Any:
    """Restore a state. A skeleton not made by `flatten` raises ValueError, KeyError or TypeError."""
    return _Restorer(flat.tensors).decode(flat.skeleton)


class _Flattener:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._name_by_storage: dict[object, str] = {}
        self._encoders: dict[type, Callable[[Any, tuple[str, ...]], object]] = {
            int: lambda value, _: value if abs(value) < _MAX_PLAIN_INT else {"int": hex(value)},
            float: lambda value, _: _encode_float(value),
            str: lambda value, _: _encode_text(value),
            torch.dtype: lambda value, _: {"dtype": str(value).removeprefix("torch.")},
            dict: self._mapping,
            OrderedDict: self._mapping,
            list: self._items,
            tuple: lambda value, path: {"tuple": self._items(value, path)},
            torch.Size: lambda value, path: {"tuple": self._items(value, path)},
        }

    def encode(self, value: Any, path: tuple[str, ...]) -> object:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if len(path) > _MAX_DEPTH:
            shown = _describe_path(path[:4])
            raise ValueError(
                f"{shown} is nested deeper than {_MAX_DEPTH} levels, or holds itself; flatten it"
            )
        encoder = self._encoders.get(type(value))
        if encoder is None:
            allowed = "tensors, dicts, lists, tuples, strings, numbers, bools, dtypes and None"
            raise TypeError(
                f"{_describe_path(path)} is a {type(value).__qualname__}; a checkpoint holds {allowed}"
            )
        return encoder(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> object:
        pairs = []
        for key, item in value.items():
            if not (key is None or type(key) in (str, int, float, bool)):
                rule = "keys are strings, numbers, bools or None"
                raise TypeError(
                    f"{_describe_path(path)} has the key {key!r}, a {type(key).__qualname__}; {rule}"
                )
            pairs.append([self.encode(key, path), self.encode(item, (*path, str(key)))])
        return {"dict": pairs}

    def _items(self, value: Sequence[Any], path: tuple[str, ...]) -> list[object]:
        return [self.encode(item, (*path, str(index))) for index, item in enumerate(value)]

    def _tensor(self, tensor: Tensor, path: tuple[str, ...]) -> object:
        key = wrapper_word(tensor)
        if key is not None:
            parts, context = take_apart(tensor)
            return {"wrapped": [key, self.encode(parts, path), self.encode(context, path)]}
        _check_plain(tensor, path)
        place = _storage_key(tensor)
        name = self._name_by_storage.get(place) if place is not None else None
        if name is None:
            name = self._unused_name(path)
            self.tensors[name] = tensor.detach().resolve_conj().resolve_neg()
            if place is not None:
                self._name_by_storage[place] = name
        return {"tensor": [name, _stride_to_keep(tensor)]}

    def _unused_name(self, path: tuple[str, ...]) -> str:
        """The path, which is readable in other tools, or a numbered name if the path is not a valid one."""
        name = ".".join(path) or "state"
        number = len(self.tensors)
        while name in self.tensors or broken_name_rule(name) is not None:
            name = f"tensor-{number}"
            number += 1
        return name


class _Restorer:
    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._restored: dict[tuple[str, tuple[int, ...] | None], Tensor] = {}
        self._decoders: dict[str, Callable[[Any], object]] = {
            "int": lambda body: int(body, 16),
            "float": lambda body: struct.unpack(">d", bytes.fromhex(body))[0],
            "text": lambda body: bytes.fromhex(body).decode("utf-8", "surrogatepass"),
            "dtype": _decode_dtype,
            "dict": lambda body: {self.decode(key): self.decode(value) for key, value in body},
            "tuple": lambda body: tuple(self.decode(item) for item in body),
            "tensor": lambda body: self._tensor(*body),
            "wrapped": lambda body: put_together(body[0], self.decode(body[1]), self.decode(body[2])),
        }

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if isinstance(node, dict):
            [(kind, body)] = node.items()
            return self._decoders[kind](body)
        return node

    def _tensor(self, name: str, stride: list[int] | None) -> Tensor:
        key = (name, tuple(stride) if stride is not None else None)
        if key not in self._restored:
            tensor = self._tensors[name]
            if stride is not None:
                tensor = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)
            self._restored[key] = tensor
        return self._restored[key]


def _encode_float(value: float) -> object:
    # JSON has no infinities, and a NaN has payload bits that the word NaN loses.
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def _encode_text(value: str) -> object:
    try:
        value.encode()
    except UnicodeEncodeError:
        # File names that are not UTF-8 contain surrogates, and JSON joins two of them into one character.
        return {"text": value.encode("utf-8", "surrogatepass").hex()}
    return value


def _decode_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is not a dtype")
    return dtype


def _check_plain(tensor: Tensor, path: tuple[str, ...]) -> None:
    if type(tensor) not in (Tensor, nn.Parameter):
        fix = "gather it (full_tensor()) or take its local part (to_local()) first"
        raise TypeError(f"{_describe_path(path)} is a {type(tensor).__qualname__}, not a plain tensor; {fix}")
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        found = "has no values (meta)" if tensor.device.type == "meta" else f"is {tensor.layout}"
        raise TypeError(f"{_describe_path(path)} {found}; a checkpoint holds dense tensors with values")
    if tensor.dtype not in SAFETENSORS_NAMES:
        raise TypeError(
            f"{_describe_path(path)} is {tensor.dtype}, which safetensors cannot hold; convert it first"
        )


def _storage_key(tensor: Tensor) -> object | None:
    """A key that is equal for two tensors exactly if they share memory and form; None without memory."""
    if tensor.numel() == 0:
        return None
    bits = (tensor.is_conj(), tensor.is_neg())
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), bits)


def _stride_to_keep(tensor: Tensor) -> list[int] | None:
    """The strides, if they differ from those of a new tensor but are as dense."""
    stride, shape = tensor.stride(), tensor.shape
    if tensor.numel() == 0 or stride == torch.empty(shape, device="meta").stride():
        return None
    expected = 1
    for step, size in sorted((s, n) for s, n in zip(stride, shape, strict=True) if n > 1):
        if step != expected:
            return None
        expected *= size
    return list(stride)


def _describe_path(path: tuple[str, ...]) -> str:
    return f"the state's {'.'.join(path)!r}" if path else "the state"
