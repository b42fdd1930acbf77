"""Copies validated tensors from the input to a safetensors file, by position and without torch.

Contiguous tensors (nearly all) are streamed; others are gathered one dimension at a time.
"""

import itertools
import math
import os
from typing import Literal

from calotype.models.files.pickle_child.errors import RefusedError
from calotype.models.files.pickle_child.torch_formats import CHUNK_BYTES, read_exactly
from calotype.models.files.pickle_child.validation import PlacedTensor
from calotype.models.files.safetensors_layout import ITEM_BYTES, encode_header, lay_out

_ITEM_FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}


def write_tensors(
    source: int, target: int, tensors: dict[str, PlacedTensor], metadata: dict[str, str], max_bytes: int
) -> int:
    """Write all tensors to the descriptor `target`; return the number of bytes written."""
    layout = lay_out({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()})
    header = encode_header(layout, metadata)
    total = len(header) + sum(entry.num_bytes for entry in layout.values())
    if total > max_bytes:
        raise RefusedError(f"its tensors would take {total} bytes when written out, the limit is {max_bytes}")
    _write_at(target, header, 0)
    for name, entry in layout.items():
        position = len(header) + entry.start
        if is_contiguous(tensors[name]):
            _stream(source, target, tensors[name], position, entry.num_bytes)
        else:
            _write_at(target, gather(source, tensors[name]), position)
    return total


def is_contiguous(tensor: PlacedTensor) -> bool:
    """Whether the items are in row-major order; the stride of a dimension of size 1 does not matter."""
    if 0 in tensor.shape:
        return True
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def gather(source: int, tensor: PlacedTensor) -> bytearray:
    """The items of a strided tensor in row-major order.

    It copies the longest dimension in one slice and loops over the others, so a channels-last convolution
    takes nine slices per output channel instead of one step per item.
    """
    item_bytes = ITEM_BYTES[tensor.dtype]
    kind = _ITEM_FORMATS[item_bytes]
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    start = tensor.storage.start + tensor.offset * item_bytes
    items = memoryview(read_exactly(source, start, span * item_bytes)).cast(kind)
    packed = [math.prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape))]
    result = bytearray(math.prod(tensor.shape) * item_bytes)
    target = memoryview(result).cast(kind)

    longest = max(range(len(tensor.shape)), key=lambda axis: tensor.shape[axis])
    size, step, packed_step = tensor.shape[longest], tensor.strides[longest], packed[longest]
    others = [axis for axis in range(len(tensor.shape)) if axis != longest]
    for index in itertools.product(*(range(tensor.shape[axis]) for axis in others)):
        first = sum(i * tensor.strides[axis] for i, axis in zip(index, others, strict=True))
        packed_first = sum(i * packed[axis] for i, axis in zip(index, others, strict=True))
        if step:
            line = items[first : first + (size - 1) * step + 1 : step]
        else:
            line = memoryview(items[first : first + 1].tobytes() * size).cast(kind)
        target[packed_first : packed_first + (size - 1) * packed_step + 1 : packed_step] = line
    return result


def _stream(source: int, target: int, tensor: PlacedTensor, position: int, num_bytes: int) -> None:
    start = tensor.storage.start + tensor.offset * ITEM_BYTES[tensor.dtype]
    for offset in range(0, num_bytes, CHUNK_BYTES):
        chunk = read_exactly(source, start + offset, min(CHUNK_BYTES, num_bytes - offset))
        _write_at(target, chunk, position + offset)


def _write_at(fd: int, data: bytes | bytearray, position: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(fd, rest, position)
        rest = rest[count:]
        position += count
