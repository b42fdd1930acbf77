"""Finds and names the tensors in an unpickled tree and validates that each lies within its storage.

The tree is untrusted: types, signs and sizes are all validated here, after unpickling.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from calotype.models.files.pickle_child.errors import RefusedError, short_repr
from calotype.models.files.pickle_child.stubs import DType, StorageRef, TensorRef
from calotype.models.files.pickle_child.torch_formats import Checkpoint, Extent
from calotype.models.files.safetensors_layout import ITEM_BYTES, MAX_BYTES, MAX_DIMENSIONS, broken_name_rule

_MAX_NESTING = 32
_MAX_VALUES = 500_000
_MAX_WRAPPERS = 4
_BARE_TENSOR_NAME = "tensor"


class PlacedTensor(NamedTuple):
    """A tensor that lies within its storage; offset and strides count items."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: Extent


@dataclass
class Findings:
    """The tensors of a checkpoint by name, and the entries left out."""

    tensors: dict[str, PlacedTensor] = field(default_factory=dict)
    storage_keys: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    dropped_values: int = 0


def place_tensors(checkpoint: Checkpoint) -> Findings:
    """Name and validate every tensor that is part of the weights."""
    findings = Findings()
    tree = _weights_of(checkpoint.root, findings)
    for num_values, (path, value) in enumerate(_walk(tree, "", 0)):
        if num_values >= _MAX_VALUES:
            raise RefusedError(f"holds more than {_MAX_VALUES} values")
        if isinstance(value, TensorRef):
            name = path or _BARE_TENSOR_NAME
            rule = broken_name_rule(name)
            if name in findings.tensors:
                rule = f"two tensors would have the name {short_repr(name)}"
            if rule is not None:
                raise RefusedError(rule)
            findings.tensors[name] = _place(name, value, checkpoint.storages)
            findings.storage_keys.add(value.storage.key)
        elif not _is_container(value):
            findings.dropped_values += 1
    if not findings.tensors:
        raise RefusedError("holds no tensors")
    return findings


def _weights_of(root: object, findings: Findings) -> object:
    """The weights in the tree; trainers store them in `state_dict` next to their own state."""
    for _ in range(_MAX_WRAPPERS):
        if not isinstance(root, dict) or not isinstance(root.get("state_dict"), dict):
            break
        findings.left_out += [key for key in root if isinstance(key, str) and key != "state_dict"]
        root = root["state_dict"]
    if isinstance(root, dict) and "string_to_param" in root:
        # A textual inversion; its token ids are not weights.
        findings.left_out += [key for key in root if isinstance(key, str) and key != "string_to_param"]
        root = {"string_to_param": root["string_to_param"]}
    return root


def _walk(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    """Every value with its dotted path, containers before their contents."""
    if depth > _MAX_NESTING:
        raise RefusedError(f"is nested more than {_MAX_NESTING} deep at {short_repr(path)}")
    yield path, value
    if not _is_container(value):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, str | int):
            yield from _walk(inner, f"{path}.{key}" if path else str(key), depth + 1)


def _is_container(value: object) -> TypeGuard[dict[object, object] | list[object] | tuple[object, ...]]:
    """Whether a value is a dictionary or sequence; our stubs are tuples too, but not containers."""
    is_stub = isinstance(value, TensorRef | StorageRef | DType)
    return not is_stub and isinstance(value, dict | list | tuple)


def _place(name: str, tensor: TensorRef, storages: dict[str, Extent]) -> PlacedTensor:
    def refuse(rule: str) -> RefusedError:
        return RefusedError(f"tensor {short_repr(name)}: {rule}")

    storage, dtype = tensor.storage, tensor.dtype
    if not isinstance(storage, StorageRef) or not isinstance(dtype, DType):
        raise refuse("it has no storage or no dtype")
    shape, strides, offset = _sizes(tensor.shape), _sizes(tensor.strides), _sizes([tensor.offset])
    if shape is None or strides is None or offset is None or len(shape) != len(strides):
        raise refuse("its shape, strides or offset are not whole numbers from 0 to 2**63, or do not match")
    extent = storages.get(storage.key)
    if extent is None:
        raise refuse(f"its storage {short_repr(storage.key)} is not in the file")
    declared = _sizes([storage.num_items])
    if declared is None or declared[0] * ITEM_BYTES[storage.dtype.name] != extent.num_bytes:
        size = f"{short_repr(storage.num_items)} items of {storage.dtype.name}"
        raise refuse(
            f"storage {short_repr(storage.key)} has {extent.num_bytes} bytes, but {size} are declared"
        )
    num_items = math.prod(shape)
    if num_items * ITEM_BYTES[dtype.name] > MAX_BYTES:
        raise refuse(f"shape {list(shape)} overflows")
    last = offset[0] + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    needed = (last + 1) * ITEM_BYTES[dtype.name]
    if num_items and needed > extent.num_bytes:
        raise refuse(f"it reaches to byte {needed} of a storage of {extent.num_bytes} bytes")
    return PlacedTensor(dtype.name, shape, strides, offset[0], extent)


def _sizes(value: object) -> tuple[int, ...] | None:
    """Non-negative machine integers, or None; True and False, which are ints in Python, do not count."""
    if not isinstance(value, list | tuple) or len(value) > MAX_DIMENSIONS:
        return None
    return tuple(value) if all(type(item) is int and 0 <= item <= MAX_BYTES for item in value) else None
