"""The format of `torch.save` before 1.6: five pickles one after another, then the storages' bytes."""

from typing import BinaryIO

from calotype.models.files.pickle_child.checkpoint import Checkpoint, Extent, read_exactly
from calotype.models.files.pickle_child.refused import RefusedError, shown
from calotype.models.files.pickle_child.stand_ins import StorageRef
from calotype.models.files.pickle_child.unpickler import InertUnpickler
from calotype.models.files.tensor_layout import ITEM_BYTES

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_COUNT_BYTES = 8


def read_raw(file: BinaryIO, size_bytes: int) -> Checkpoint:
    """Read the pickles and find the storages."""
    file.seek(0)
    if _load(file) != _MAGIC_NUMBER:
        raise RefusedError("is a pickle, but not one that torch.save wrote: torch's magic number is missing")
    protocol = _load(file)
    if protocol != _PROTOCOL:
        raise RefusedError(f"its legacy protocol is {shown(protocol)}; only {_PROTOCOL} is known")
    system = _load(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise RefusedError("was written on a big-endian machine; only little-endian files are read")
    unpickler = InertUnpickler(file)
    tree = unpickler.load()
    keys = _load(file)
    if not isinstance(keys, list) or sorted(map(repr, keys)) != sorted(map(repr, unpickler.storages)):
        raise RefusedError("its list of storages is not the list its tensors refer to")
    storages = {}
    position = file.tell()
    for key in keys:
        storages[key] = _extent(file.fileno(), unpickler.storages[key], position)
        position = storages[key].start + storages[key].num_bytes
    if position != size_bytes:
        raise RefusedError(f"its storages end at byte {position}, but the file has {size_bytes} bytes")
    return Checkpoint(tree, storages, unpickler.dropped)


def _load(file: BinaryIO) -> object:
    return InertUnpickler(file).load()


def _extent(fd: int, storage: StorageRef, position: int) -> Extent:
    stored = int.from_bytes(read_exactly(fd, position, _COUNT_BYTES), "little", signed=True)
    if type(storage.num_items) is not int or stored != storage.num_items or stored < 0:
        wanted = shown(storage.num_items)
        raise RefusedError(
            f"storage {shown(storage.key)} has {stored} items, its tensors were promised {wanted}"
        )
    return Extent(position + _COUNT_BYTES, stored * ITEM_BYTES[storage.dtype.name], None)
