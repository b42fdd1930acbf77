"""Where each sample of a tar shard lies, found once and kept: then any sample can be read at any time.

An index is kept under the cache by the shard's size and time: a shard that changes is looked through again.
Knows nothing of what members hold.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import ModelFileError
from calotype.core.paths import cache_dir
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.files.tensor_file import open_safetensors
from calotype.train.data.once import alone_with
from calotype.train.data.report import Unreadable
from calotype.train.data.tar_scan import ABSENT, NUM_ROLES, scan_tar

FORMAT = "calotype.shard-index.2"
_KEY_COLUMNS = 2 * NUM_ROLES


@dataclass(frozen=True)
class ShardIndex:
    """The samples of one shard.

    Plain tensors rather than objects: millions of rows are quick to load, and workers share the memory.
    """

    path: Path
    size_bytes: int
    mtime_ns: int
    rows: Tensor
    """For each sample, begin and length of every role's member in the shard, then of its key in `keys`."""
    keys: Tensor
    damage: tuple[Unreadable, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def key(self, index: int) -> str:
        begin, length = self.rows[index, _KEY_COLUMNS:].tolist()
        return self.keys[begin : begin + length].numpy().tobytes().decode()

    def member(self, index: int, role: int) -> tuple[int, int] | None:
        """Where the sample's member of that role begins and how long it is."""
        begin, length = self.rows[index, 2 * role : 2 * role + 2].tolist()
        return None if begin == ABSENT else (begin, length)

    def has(self, role: int) -> bool:
        """Whether any sample has such a member."""
        return bool((self.rows[:, 2 * role] != ABSENT).any())


def index_shard(path: Path) -> ShardIndex:
    """The index of a shard: the one kept, or a new one."""
    status = path.stat()
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    kept = cache_dir() / "shard-index" / f"{place}-{status.st_size}-{status.st_mtime_ns}.safetensors"
    with alone_with(kept.with_name(place)):
        index = _read_kept(kept, path, status)
        if index is None:
            index = _made(path, status)
            for outdated in kept.parent.glob(f"{place}-*.safetensors"):
                outdated.unlink()
            _keep(kept, index)
    return index


def _made(path: Path, status: os.stat_result) -> ShardIndex:
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


def _keep(kept: Path, index: ShardIndex) -> None:
    tensors = {"rows": index.rows, "keys": index.keys}
    damage = json.dumps([[sample.name, sample.reason] for sample in index.damage])
    declared = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    write_safetensors(kept, declared, tensors.__getitem__, {"format": FORMAT, "damage": damage})


def _read_kept(kept: Path, path: Path, status: os.stat_result) -> ShardIndex | None:
    if not kept.exists():
        return None
    try:
        with open_safetensors(kept) as file:
            if file.metadata.get("format") != FORMAT:
                return None
            damage = tuple(Unreadable(*pair) for pair in json.loads(file.metadata["damage"]))
            rows, keys = file.read("rows"), file.read("keys")
    except (ModelFileError, ValueError):
        return None
    return ShardIndex(path, status.st_size, status.st_mtime_ns, rows, keys, damage)
