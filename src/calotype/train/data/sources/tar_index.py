"""The index of a tar shard: the offset of each member, scanned once and cached, for random access.

The cached index is keyed by the shard's size and modification time, so a changed shard is scanned again.
"""

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.core.paths import cache_dir
from calotype.models.files.safetensors_reader import open_safetensors
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.train.data.bad_samples import BadSample, DataError
from calotype.train.data.file_lock import exclusive_lock

PICTURE, CAPTION, JSON_CAPTION, LATENTS = range(4)
"""The role of a member within its sample."""
NUM_ROLES = 4
ABSENT = -1
_ROLES = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp"), PICTURE),
    **dict.fromkeys(("txt", "text", "caption"), CAPTION),
    "json": JSON_CAPTION,
    **dict.fromkeys(("npy", "safetensors"), LATENTS),
}
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7z": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_TAIL_BYTES = 2**20
_TWO_DOTS = "WebDataset takes everything after the first dot for the extension"


@dataclass
class Scan:
    """The content of a shard."""

    path: Path
    samples: dict[str, list[int]] = field(default_factory=dict)
    """For each key, the offset and size of the member of each role."""
    damage: list[BadSample] = field(default_factory=list)
    dotted: dict[str, str] = field(default_factory=dict)
    """For each name with a second dot, without its last extension, the first such member."""

    def note(self, name: str, reason: str) -> None:
        self.damage.append(BadSample(f"{self.path.name}:{name}", reason))

    def add(self, member: tarfile.TarInfo) -> None:
        key, role = _split(member.name)
        if not member.isfile():
            return
        if role is None:
            name, _, ending = member.name.rpartition(".")
            # Hidden files are excluded; their key ends in the folder.
            if ending.lower() in _ROLES and key.rpartition("/")[2]:
                self.dotted.setdefault(name, member.name)
            return
        places = self.samples.setdefault(key, [ABSENT, 0] * NUM_ROLES)
        if places[2 * role] != ABSENT:
            self.note(member.name, f"{key!r} has another member for the same purpose; this one is not used")
            return
        places[2 * role : 2 * role + 2] = [member.offset_data, member.size]

    def note_dotted(self) -> None:
        """Report names with a second dot, unless they add to a known sample, like `key.depth.png`."""
        for name in self.dotted.values():
            key, _ = _split(name)
            if key not in self.samples:
                self.note(name, f"{_TWO_DOTS}, which is unknown; rename it")


def scan_tar(path: Path) -> Scan:
    """Scan `path`; files that are not plain tar archives or have no samples are refused."""
    scan = Scan(path)
    with path.open("rb") as file:
        _refuse_compressed(path, file)
        for member in _members(file, scan):
            scan.add(member)
    if not scan.samples and scan.dotted:
        name = next(iter(scan.dotted.values()))
        raise DataError(path, f"holds no samples: {_TWO_DOTS}, as in {name}; leave one dot in each name")
    if not scan.samples:
        known = ", ".join(f".{extension}" for extension in _ROLES)
        raise DataError(path, f"holds no samples: no member's name ends in one of {known}")
    scan.note_dotted()
    return scan


def _split(name: str) -> tuple[str, int | None]:
    """Key and role of a member; as in WebDataset, the key ends at the first dot of the file name."""
    folder, slash, file = name.rpartition("/")
    stem, _, extension = file.partition(".")
    # Names without a stem are hidden files, which some systems put beside every other file.
    role = _ROLES.get(extension.lower()) if stem else None
    return folder + slash + stem, role


def _members(file: IO[bytes], scan: Scan) -> Iterator[tarfile.TarInfo]:
    """Members up to the end or the first damage; tarfile itself treats some damage as the end."""
    try:
        archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - it is closed below
    except tarfile.TarError as error:
        raise DataError(scan.path, f"is not a tar archive ({error})") from None
    last = ""
    with archive:
        try:
            while (member := archive.next()) is not None:
                last = member.name
                yield member
        except tarfile.TarError:
            size = file.seek(0, os.SEEK_END)
            scan.note(f"byte {size}", f"the archive is cut off here, within or after {last}")
            return
        _check_end(file, archive.offset, scan)


def _check_end(file: IO[bytes], end: int, scan: Scan) -> None:
    file.seek(end)
    tail = file.read(_TAIL_BYTES)
    if not tail:
        scan.note(f"byte {end}", "the archive ends without its end mark: samples may be missing")
    elif any(tail[: tarfile.BLOCKSIZE]):
        scan.note(f"byte {end}", "no member begins where one should: what follows is not read")
    elif any(tail):
        scan.note(f"byte {end}", "something follows the archive's end mark: it is not read")


def _refuse_compressed(path: Path, file: IO[bytes]) -> None:
    head = file.read(8)
    file.seek(0)
    for start, name in _COMPRESSED.items():
        if head.startswith(start):
            rule = f"is compressed with {name}, so samples cannot be read in any order; unpack it to a .tar"
            raise DataError(path, rule)


FORMAT = "calotype.shard-index.2"
_KEY_COLUMNS = 2 * NUM_ROLES


@dataclass(frozen=True)
class ShardIndex:
    """The samples of one shard.

    It uses plain tensors instead of objects: millions of rows load quickly, and workers share the memory.
    """

    path: Path
    size_bytes: int
    mtime_ns: int
    rows: Tensor
    """For each sample, offset and length of every role's member in the shard, then of its key in `keys`."""
    keys: Tensor
    damage: tuple[BadSample, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def key(self, index: int) -> str:
        begin, length = self.rows[index, _KEY_COLUMNS:].tolist()
        return self.keys[begin : begin + length].numpy().tobytes().decode()

    def member(self, index: int, role: int) -> tuple[int, int] | None:
        """Offset and length of the sample's member of that role."""
        begin, length = self.rows[index, 2 * role : 2 * role + 2].tolist()
        return None if begin == ABSENT else (begin, length)

    def has(self, role: int) -> bool:
        """Whether any sample has such a member."""
        return bool((self.rows[:, 2 * role] != ABSENT).any())


def index_shard(path: Path) -> ShardIndex:
    """The index of a shard: the cached one, or a new one."""
    status = path.stat()
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    cache_file = cache_dir() / "shard-index" / f"{place}-{status.st_size}-{status.st_mtime_ns}.safetensors"
    with exclusive_lock(cache_file.with_name(place)):
        index = _read_cached(cache_file, path, status)
        if index is None:
            index = _build_index(path, status)
            for outdated in cache_file.parent.glob(f"{place}-*.safetensors"):
                outdated.unlink()
            _write_cached(cache_file, index)
    return index


def _build_index(path: Path, status: os.stat_result) -> ShardIndex:
    scan = scan_tar(path)
    keys, rows = bytearray(), []
    for key, places in scan.samples.items():
        encoded = key.encode(errors="replace")
        rows.append([*places, len(keys), len(encoded)])
        keys += encoded
    return ShardIndex(
        path,
        status.st_size,
        status.st_mtime_ns,
        torch.tensor(rows, dtype=torch.int64),
        torch.frombuffer(keys, dtype=torch.uint8),
        tuple(scan.damage),
    )


def _write_cached(cache_file: Path, index: ShardIndex) -> None:
    tensors = {"rows": index.rows, "keys": index.keys}
    damage = json.dumps([[sample.name, sample.reason] for sample in index.damage])
    declared = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    write_safetensors(cache_file, declared, tensors.__getitem__, {"format": FORMAT, "damage": damage})


def _read_cached(cache_file: Path, path: Path, status: os.stat_result) -> ShardIndex | None:
    if not cache_file.exists():
        return None
    try:
        with open_safetensors(cache_file) as file:
            if file.metadata.get("format") != FORMAT:
                return None
            damage = tuple(BadSample(*pair) for pair in json.loads(file.metadata["damage"]))
            rows, keys = file.read("rows"), file.read("keys")
    except (ModelFileError, ValueError):
        return None
    return ShardIndex(path, status.st_size, status.st_mtime_ns, rows, keys, damage)
