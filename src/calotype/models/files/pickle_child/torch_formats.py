"""Reads torch's zip and legacy pickle formats: an object tree of stubs and the position of each storage."""

import io
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from calotype.models.files.pickle_child.errors import RefusedError, short_repr
from calotype.models.files.pickle_child.stubs import StorageRef
from calotype.models.files.pickle_child.unpickler import InertUnpickler
from calotype.models.files.safetensors_layout import ITEM_BYTES

CHUNK_BYTES = 4 * 1024 * 1024


class Extent(NamedTuple):
    """A byte range in the input file, with its `crc32` if the format has one."""

    start: int
    num_bytes: int
    crc32: int | None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with its pickle loaded and its tensors not yet read."""

    root: object
    storages: dict[str, Extent]
    dropped_names: set[str]


def read_exactly(fd: int, start: int, num_bytes: int) -> bytes:
    """Read bytes by position; the end of the file is an error."""
    parts = []
    while num_bytes > 0:
        part = os.pread(fd, num_bytes, start)
        if not part:
            raise RefusedError(
                f"ends at byte {start} while {num_bytes} more bytes are needed; it is truncated"
            )
        parts.append(part)
        start += len(part)
        num_bytes -= len(part)
    return b"".join(parts)


def check_crc32(fd: int, what: str, extent: Extent) -> None:
    """Raise RefusedError if the bytes do not match their checksum."""
    if extent.crc32 is None:
        return
    checksum = 0
    for offset in range(0, extent.num_bytes, CHUNK_BYTES):
        length = min(CHUNK_BYTES, extent.num_bytes - offset)
        checksum = zlib.crc32(read_exactly(fd, extent.start + offset, length), checksum)
    if checksum != extent.crc32:
        raise RefusedError(
            f"{what} is damaged: its CRC is {checksum:08x}, the archive says {extent.crc32:08x}"
        )


class PositionedFile(io.RawIOBase):
    """A file object that reads a descriptor by position; closing it leaves the descriptor open."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._size_bytes = size_bytes
        self._position = 0

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._fd, len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        if start + offset < 0:
            raise OSError("cannot seek to before the beginning")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position


_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_COUNT_BYTES = 8


def read_raw(file: BinaryIO, size_bytes: int) -> Checkpoint:
    """Read the pickles of a legacy file and locate its storages."""
    file.seek(0)
    if _load(file) != _MAGIC_NUMBER:
        raise RefusedError("is a pickle, but not one that torch.save wrote: torch's magic number is missing")
    protocol = _load(file)
    if protocol != _PROTOCOL:
        raise RefusedError(f"its legacy protocol is {short_repr(protocol)}; only {_PROTOCOL} is known")
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
        storages[key] = _raw_extent(file.fileno(), unpickler.storages[key], position)
        position = storages[key].start + storages[key].num_bytes
    if position != size_bytes:
        raise RefusedError(f"its storages end at byte {position}, but the file has {size_bytes} bytes")
    return Checkpoint(tree, storages, unpickler.dropped)


def _load(file: BinaryIO) -> object:
    return InertUnpickler(file).load()


def _raw_extent(fd: int, storage: StorageRef, position: int) -> Extent:
    stored = int.from_bytes(read_exactly(fd, position, _COUNT_BYTES), "little", signed=True)
    if type(storage.num_items) is not int or stored != storage.num_items or stored < 0:
        declared = short_repr(storage.num_items)
        raise RefusedError(
            f"storage {short_repr(storage.key)} has {stored} items, but its tensors declare {declared}"
        )
    return Extent(position + _COUNT_BYTES, stored * ITEM_BYTES[storage.dtype.name], None)


_MAX_PICKLE_BYTES = 64 * 1024 * 1024
_ENCRYPTED = 0x1
_LOCAL_HEADER = struct.Struct("<4s22xHH")


def read_zip(file: BinaryIO, size_bytes: int) -> Checkpoint:
    """Read the pickle of a zip archive and locate its storages."""
    fd = file.fileno()
    try:
        with zipfile.ZipFile(file) as archive:
            members = _checked_members(archive.infolist(), size_bytes)
    except zipfile.BadZipFile as error:
        raise RefusedError(f"is a damaged zip archive: {error}") from None
    root = _root_of(members)
    extents = {name: _extent(fd, info, size_bytes) for name, info in members.items() if not info.is_dir()}
    _check_byte_order(fd, extents.get(f"{root}byteorder"))
    pickled = extents[f"{root}data.pkl"]
    if pickled.num_bytes > _MAX_PICKLE_BYTES:
        raise RefusedError(f"data.pkl has {pickled.num_bytes} bytes, the limit is {_MAX_PICKLE_BYTES}")
    check_crc32(fd, "data.pkl", pickled)
    unpickler = InertUnpickler(io.BytesIO(read_exactly(fd, pickled.start, pickled.num_bytes)))
    tree = unpickler.load()
    prefix = f"{root}data/"
    storages = {name[len(prefix) :]: extent for name, extent in extents.items() if name.startswith(prefix)}
    return Checkpoint(tree, storages, unpickler.dropped)


def _checked_members(infos: list[zipfile.ZipInfo], size_bytes: int) -> dict[str, zipfile.ZipInfo]:
    declared = sum(info.file_size for info in infos)
    if declared > size_bytes:
        raise RefusedError(
            f"its zip members declare {declared} bytes in a file of {size_bytes}; torch never compresses them"
        )
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename
        parts = name.removesuffix("/").split("/")
        if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in parts):
            raise RefusedError(f"zip member {short_repr(name)} has a path that could leave its folder")
        if name in members:
            raise RefusedError(f"has two zip members named {short_repr(name)}")
        if info.flag_bits & _ENCRYPTED:
            raise RefusedError(f"zip member {short_repr(name)} is encrypted")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise RefusedError(f"zip member {short_repr(name)} is compressed; torch never compresses them")
        members[name] = info
    return members


def _root_of(members: dict[str, zipfile.ZipInfo]) -> str:
    pickles = [name for name in members if name.split("/")[-1] == "data.pkl"]
    if not pickles:
        raise RefusedError("is a zip archive without data.pkl, so torch.save did not write it")
    if len(pickles) > 1:
        raise RefusedError(f"has {len(pickles)} members named data.pkl: {short_repr(', '.join(pickles))}")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in members:
        raise RefusedError("is a TorchScript program, not a file of weights")
    return root


def _extent(fd: int, info: zipfile.ZipInfo, size_bytes: int) -> Extent:
    header = read_exactly(fd, info.header_offset, _LOCAL_HEADER.size)
    signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    start = info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    if signature != b"PK\x03\x04" or start + info.file_size > size_bytes:
        raise RefusedError(
            f"zip member {short_repr(info.filename)} is not where the archive's directory says"
        )
    return Extent(start, info.file_size, info.CRC)


def _check_byte_order(fd: int, extent: Extent | None) -> None:
    if extent is None:
        return
    order = read_exactly(fd, extent.start, min(extent.num_bytes, 16))
    if order != b"little":
        raise RefusedError(f"its byte order is {order!r}; only little-endian files are read")
