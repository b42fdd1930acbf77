"""Validates a safetensors header before any tensor is read.

It is stricter than the format's own library: it also rejects duplicate keys, odd names and unknown fields.
"""

import json
import math
import reprlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from calotype.core.errors import ModelFileError
from calotype.models.files.safe_open import OpenedFile
from calotype.models.files.safetensors_layout import (
    ITEM_BYTES,
    MAX_BYTES,
    MAX_DIMENSIONS,
    METADATA_KEY,
    TensorEntry,
    broken_name_rule,
)
from calotype.models.files.sniff import MAX_SAFETENSORS_HEADER_BYTES_LENGTH

_LENGTH_BYTES = 8
_WHOLE_NUMBERS = "whole numbers from 0 to 2**63"
_FIELDS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class Header:
    """The contents that a safetensors file declares, validated against the file's size."""

    tensors: Mapping[str, TensorEntry]
    metadata: Mapping[str, str]
    data_start: int


class _RepeatedKeyError(ValueError):
    pass


def strict_json(file: object, text: bytes, what: str) -> dict[str, object]:
    """Parse a JSON object; reject repeated keys, NaN and deep nesting. `what` names it in messages."""
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(file, f"{what} is not UTF-8 text (byte {error.start} is wrong)") from None
    try:
        value = json.loads(decoded, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except _RepeatedKeyError as error:
        raise ModelFileError(file, f"{what} names {error} more than once") from None
    except RecursionError:
        raise ModelFileError(file, f"{what} is nested too deeply to be one") from None
    except ValueError as error:
        raise ModelFileError(file, f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFileError(file, f"{what} is a JSON {type(value).__name__}, not an object")
    return value


def read_header(opened: OpenedFile) -> Header:
    """Read and validate the header of `opened`."""
    length = _header_length(opened)
    data_start = _LENGTH_BYTES + length
    text = opened.read_at(_LENGTH_BYTES, length)
    fields = strict_json(opened.path, text, "its header")
    metadata = _checked_metadata(opened, fields.pop(METADATA_KEY, {}))
    tensors = {name: _checked_entry(opened, name, value) for name, value in fields.items()}
    _check_coverage(opened, tensors, opened.size_bytes - data_start)
    return Header(tensors, metadata, data_start)


def _header_length(opened: OpenedFile) -> int:
    size = opened.size_bytes
    if size < _LENGTH_BYTES:
        rule = f"has {size} bytes; safetensors begin with an {_LENGTH_BYTES}-byte header length"
        raise ModelFileError(opened.path, "is empty (0 bytes)" if size == 0 else rule)
    length = int.from_bytes(opened.read_at(0, _LENGTH_BYTES), "little")
    if length > MAX_SAFETENSORS_HEADER_BYTES_LENGTH:
        limit = MAX_SAFETENSORS_HEADER_BYTES_LENGTH
        raise ModelFileError(opened.path, f"declares a header of {length} bytes, the limit is {limit}")
    if _LENGTH_BYTES + length > size:
        rest = size - _LENGTH_BYTES
        raise ModelFileError(opened.path, f"declares a header of {length} bytes, but only {rest} follow")
    if length == 0 or opened.read_at(_LENGTH_BYTES, 1) != b"{":
        start = opened.read_at(_LENGTH_BYTES, min(length, 8))
        raise ModelFileError(opened.path, f"has a header that does not begin with '{{' but with {start!r}")
    return length


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        [(repeated, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise _RepeatedKeyError(repr(repeated[:80]))
    return result


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not allowed")


def _checked_metadata(opened: OpenedFile, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ModelFileError(opened.path, f"its {METADATA_KEY} is {reprlib.repr(value)}, not an object")
    for key, text in value.items():
        if not isinstance(text, str):
            rule = (
                f"its {METADATA_KEY} maps {reprlib.repr(key)} to {reprlib.repr(text)}; only text is allowed"
            )
            raise ModelFileError(opened.path, rule)
    return value


def _checked_entry(opened: OpenedFile, name: str, value: object) -> TensorEntry:
    rule = broken_name_rule(name)
    if rule is not None:
        raise ModelFileError(opened.path, rule)

    def refuse(rule: str) -> NoReturn:
        raise ModelFileError(opened.path, f"tensor {name!r}: {rule}")

    if not isinstance(value, dict) or value.keys() != _FIELDS:
        refuse(f"its entry must have exactly {', '.join(sorted(_FIELDS))}, not {reprlib.repr(value)}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        refuse(f"dtype {reprlib.repr(dtype)} is unknown; known are {', '.join(ITEM_BYTES)}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        refuse(f"shape {reprlib.repr(shape)} is not a list of at most {MAX_DIMENSIONS} {_WHOLE_NUMBERS}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        refuse(f"data_offsets {reprlib.repr(offsets)} are not two {_WHOLE_NUMBERS}")
    start, end = offsets
    num_bytes = math.prod(shape) * ITEM_BYTES[dtype]
    if num_bytes > MAX_BYTES:
        refuse(f"shape {reprlib.repr(shape)} overflows: {num_bytes} bytes, the limit is {MAX_BYTES}")
    if start > end:
        refuse(f"data_offsets {offsets} are reversed")
    if end - start != num_bytes:
        refuse(f"data_offsets {offsets} span {end - start} bytes, but {dtype} {shape} takes {num_bytes}")
    return TensorEntry(dtype, tuple(shape), start, end)


def _are_sizes(value: object) -> bool:
    """Whether this is a list of non-negative ints; True and False, which are ints in Python, do not count."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= MAX_BYTES for item in value)


def _check_coverage(opened: OpenedFile, tensors: Mapping[str, TensorEntry], data_bytes: int) -> None:
    """Require that tensors cover the data section exactly: no overlap, gap, missing or trailing bytes."""
    position, previous = 0, ""
    for name, entry in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start < position:
            where = f"one ends at data byte {position}, the next begins at {entry.start}"
            raise ModelFileError(opened.path, f"tensors {previous!r} and {name!r} overlap: {where}")
        if entry.start > position:
            gap = entry.start - position
            raise ModelFileError(opened.path, f"has a hole of {gap} bytes before tensor {name!r}")
        if entry.end > data_bytes:
            missing = entry.end - data_bytes
            rule = (
                f"tensor {name!r} ends at data byte {entry.end} of {data_bytes}: {missing} bytes are missing"
            )
            raise ModelFileError(opened.path, rule)
        position, previous = entry.end, name
    if position != data_bytes:
        trailing = data_bytes - position
        raise ModelFileError(opened.path, f"has {trailing} trailing bytes after its last tensor")
