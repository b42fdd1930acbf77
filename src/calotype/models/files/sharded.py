"""Reads and writes a folder's weights in one file or in shards with an index, as diffusers does.

The index is untrusted: its file names are validated.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, KeysView, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from calotype.core.errors import ModelFileError, NotFoundError, RequestError
from calotype.core.paths import atomic_write, check_name
from calotype.core.progress import Progress, Silent
from calotype.models.files.base import TensorReader
from calotype.models.files.open import open_tensors
from calotype.models.files.safe_open import open_regular
from calotype.models.files.safetensors_header import strict_json
from calotype.models.files.safetensors_layout import TensorEntry
from calotype.models.files.safetensors_reader import TensorFile, open_safetensors
from calotype.models.files.safetensors_writer import Declared, Produce, stream_safetensors

_MAX_INDEX_BYTES = 64 * 1024 * 1024


def write_sharded(
    folder: Path,
    stem: str,
    entries: Declared,
    produce: Produce,
    max_shard_bytes: int,
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write `stem.safetensors`, or shards of at most `max_shard_bytes` and an index; return the paths.

    All files appear together at the end, and leftover files of an earlier write are removed.
    """
    shards = _plan_shards(entries, max_shard_bytes)
    count = len(shards)
    names = [f"{stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
    if count == 1:
        names = [f"{stem}.safetensors"]
    index = folder / f"{stem}.safetensors.index.json"
    with ExitStack() as stack:
        # Entered first, so renamed last: an index never names a shard that does not exist yet.
        index_file = stack.enter_context(atomic_write(index)) if count > 1 else None
        for name, shard in zip(names, shards, strict=True):
            file = stack.enter_context(atomic_write(folder / name))
            stream_safetensors(file, shard, produce, metadata, progress or Silent())
            # Sync now rather than at the end, so that the renames follow each other without delay.
            file.flush()
            os.fsync(file.fileno())
        if index_file is not None:
            index_file.write(_encode_index(names, shards))
    written = [folder / name for name in names] + ([index] if count > 1 else [])
    _remove_earlier(folder, stem, keep=written)
    return written


def _plan_shards(entries: Declared, max_shard_bytes: int) -> list[Declared]:
    """Fill shards in the given order; a tensor above the limit gets its own shard."""
    if max_shard_bytes <= 0:
        raise ValueError(f"max_shard_bytes is {max_shard_bytes}, it must be positive")
    shards: list[dict[str, tuple[torch.dtype, tuple[int, ...]]]] = [{}]
    filled = 0
    for name, (dtype, shape) in entries.items():
        num_bytes = _num_bytes(dtype, shape)
        if shards[-1] and filled + num_bytes > max_shard_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = (dtype, tuple(shape))
        filled += num_bytes
    return list(shards)


def _num_bytes(dtype: torch.dtype, shape: Iterable[int]) -> int:
    return torch.Size(shape).numel() * dtype.itemsize


def _encode_index(names: list[str], shards: list[Declared]) -> bytes:
    weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    total = sum(_num_bytes(dtype, shape) for shard in shards for dtype, shape in shard.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    return json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n"


def _remove_earlier(folder: Path, stem: str, keep: list[Path]) -> None:
    pattern = re.compile(re.escape(stem) + r"(\.safetensors\.index\.json|(-\d{5}-of-\d{5})?\.safetensors)")
    for path in folder.iterdir():
        if path not in keep and pattern.fullmatch(path.name):
            path.unlink()


def open_weights(folder: Path, stem: str, *, inside: Path | None = None) -> TensorReader:
    """Open the weights `stem` of `folder`: one safetensors file, shards with an index, or an old `.bin`.

    Links must stay `inside`, by default `folder`; for a hub cache the caller passes a wider folder.
    """
    index = _index_of(folder, stem)
    whole = folder / f"{stem}.safetensors"
    old = folder / f"{stem}.bin"
    if index.is_file() and whole.is_file():
        raise ModelFileError(
            folder, f"holds both {whole.name} and {index.name}; remove the one that is out of date"
        )
    if index.is_file():
        return ShardedTensors(index, inside or folder)
    for path in (whole, old):
        if path.is_file():
            return open_tensors(path, inside=inside or folder)
    raise NotFoundError(f"{folder}: has neither {whole.name} nor {index.name} nor {old.name}")


def present_stem(folder: Path, stems: Sequence[str]) -> str:
    """The first of `stems` with weights in `folder`, safetensors before pickles; else the first stem."""
    safe = [
        stem
        for stem in stems
        if (folder / f"{stem}.safetensors").is_file() or _index_of(folder, stem).is_file()
    ]
    old = [stem for stem in stems if (folder / f"{stem}.bin").is_file()]
    return next(iter((*safe, *old)), stems[0])


def _index_of(folder: Path, stem: str) -> Path:
    """The index of `stem`; libraries put a variant (the fp16 of model.fp16) last in the index's name."""
    base, dot, variant = stem.rpartition(".")
    variant_index = folder / f"{base}.safetensors.index.{variant}.json"
    return variant_index if dot and variant_index.is_file() else folder / f"{stem}.safetensors.index.json"


class ShardedTensors(TensorReader):
    """Tensors in several files, located by an index."""

    def __init__(self, index: Path, inside: Path) -> None:
        self.path = index
        weight_map = _read_weight_map(index, inside)
        with ExitStack() as stack:
            self._shards: dict[str, TensorFile] = {}
            for name in sorted(set(weight_map.values())):
                self._shards[name] = stack.enter_context(_open_shard(index, name, inside))
            self._shard_by_tensor = {tensor: self._shards[name] for tensor, name in weight_map.items()}
            for tensor, name in weight_map.items():
                if tensor not in self._shards[name]:
                    raise ModelFileError(
                        index, f"says {tensor!r} is in {name}, but that file does not have it"
                    )
            self._open = stack.pop_all()

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of all shards; writers give every shard the same."""
        return {key: text for shard in self._shards.values() for key, text in shard.metadata.items()}

    @property
    def size_bytes(self) -> int:
        return sum(self.entry(name).num_bytes for name in self)

    def keys(self) -> KeysView[str]:
        return self._shard_by_tensor.keys()

    def entry(self, name: str) -> TensorEntry:
        return self._shard_of(name).entry(name)

    def read(self, name: str) -> torch.Tensor:
        return self._shard_of(name).read(name)

    def sha256(self, progress: Progress | None = None) -> str:
        """The digest of the shards' digests and names, one per line in the format of sha256sum."""
        lines = [f"{shard.sha256(progress)}  {name}\n" for name, shard in self._shards.items()]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def close(self) -> None:
        self._open.close()

    def _shard_of(self, name: str) -> TensorFile:
        shard = self._shard_by_tensor.get(name)
        if shard is None:
            raise self.no_such_tensor(name)
        return shard


def _read_weight_map(index: Path, inside: Path) -> dict[str, str]:
    with open_regular(index, inside=inside) as opened:
        if opened.size_bytes > _MAX_INDEX_BYTES:
            rule = f"has {opened.size_bytes} bytes, the limit for an index is {_MAX_INDEX_BYTES}"
            raise ModelFileError(index, rule)
        text = opened.read_at(0, opened.size_bytes)
    weight_map = strict_json(index, text, "the index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(index, "has no weight_map that names a file for each tensor")
    for tensor, name in weight_map.items():
        if not isinstance(name, str):
            raise ModelFileError(index, f"maps {tensor!r} to {name!r}, which is no file name")
        try:
            check_name("weight_map", name)
        except RequestError as error:
            raise ModelFileError(index, str(error)) from None
    return weight_map


def _open_shard(index: Path, name: str, inside: Path) -> TensorFile:
    try:
        return open_safetensors(index.parent / name, inside=inside)
    except NotFoundError:
        raise ModelFileError(index, f"names the shard {name}, which does not exist") from None
