"""The zip format of `torch.save` since 1.6: a pickle and one uncompressed member for each storage.

Refuses from the zip directory alone whatever torch does not write, so that nothing is ever inflated.
"""

import io
import struct
import zipfile
from typing import BinaryIO

from calotype.models.files.pickle_child.checkpoint import Checkpoint, Extent, check_crc32, read_exactly
from calotype.models.files.pickle_child.refused import RefusedError, shown
from calotype.models.files.pickle_child.unpickler import InertUnpickler

_LARGEST_PICKLE_BYTES = 64 * 1024 * 1024
_ENCRYPTED = 0x1
_LOCAL_HEADER = struct.Struct("<4s22xHH")


def read_zip(file: BinaryIO, size_bytes: int) -> Checkpoint:
    """Read the pickle of an archive and find its storages."""
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
    if pickled.num_bytes > _LARGEST_PICKLE_BYTES:
        raise RefusedError(f"data.pkl has {pickled.num_bytes} bytes, the limit is {_LARGEST_PICKLE_BYTES}")
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
            raise RefusedError(f"zip member {shown(name)} has a path that could leave its folder")
        if name in members:
            raise RefusedError(f"has two zip members named {shown(name)}")
        if info.flag_bits & _ENCRYPTED:
            raise RefusedError(f"zip member {shown(name)} is encrypted")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise RefusedError(f"zip member {shown(name)} is compressed; torch never compresses them")
        members[name] = info
    return members


def _root_of(members: dict[str, zipfile.ZipInfo]) -> str:
    pickles = [name for name in members if name.split("/")[-1] == "data.pkl"]
    if not pickles:
        raise RefusedError("is a zip archive without data.pkl, so torch.save did not write it")
    if len(pickles) > 1:
        raise RefusedError(f"has {len(pickles)} members named data.pkl: {shown(', '.join(pickles))}")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in members:
        raise RefusedError("is a TorchScript program, not a file of weights")
    return root


def _extent(fd: int, info: zipfile.ZipInfo, size_bytes: int) -> Extent:
    header = read_exactly(fd, info.header_offset, _LOCAL_HEADER.size)
    signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    start = info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    if signature != b"PK\x03\x04" or start + info.file_size > size_bytes:
        raise RefusedError(f"zip member {shown(info.filename)} is not where the archive's directory says")
    return Extent(start, info.file_size, info.CRC)


def _check_byte_order(fd: int, extent: Extent | None) -> None:
    if extent is None:
        return
    order = read_exactly(fd, extent.start, min(extent.num_bytes, 16))
    if order != b"little":
        raise RefusedError(f"its byte order is {order!r}; only little-endian files are read")
