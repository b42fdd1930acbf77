"""Precomputed latents and embeddings as a source."""

import hashlib
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import torch

from calotype.core.errors import NotFoundError
from calotype.train.data.bad_samples import BadSample, CorruptSampleError, DataError
from calotype.train.data.image_transforms import Size
from calotype.train.data.precomputed.index import FinishedShard, PrecomputedIndex, read_parts
from calotype.train.data.precomputed.shard import EMPTY_TEXT, PrecomputedShard, read_text
from calotype.train.data.requirements import DataRequirements
from calotype.train.data.sources.file_pool import OpenFiles
from calotype.train.data.types import Sample, Text


class PrecomputedSource:
    """Every sample of every finished shard, in the order of precomputing."""

    damage: tuple[BadSample, ...] = ()

    def __init__(self, folder: Path, needs: DataRequirements, *, unfinished: bool = False) -> None:
        """`unfinished` reads what an interrupted precompute has written so far."""
        if not folder.is_dir():
            raise NotFoundError(
                f"data.path: {folder} is not a folder; make one with `calotype train precompute`"
            )
        parts = read_parts(folder, unfinished=unfinished)
        parts[0][1].made_by.check(folder, needs)
        self._paths = [
            folder_of_part / shard.file for folder_of_part, index in parts for shard in index.shards
        ]
        if not self._paths:
            raise DataError(folder, "holds no samples; was every image unreadable?")
        self._files = OpenFiles(self._open)
        shapes = [
            self._read_shapes_checked(folder_of_part / shard.file, shard, index)
            for folder_of_part, index in parts
            for shard in index.shards
        ]
        self._ends = list(accumulate(len(rows) for rows in shapes))
        self._sizes = torch.cat(shapes)[:, 1:] * needs.vae_factor
        self._identity = _identity_of(parts)
        text_files = [
            folder_of_part / EMPTY_TEXT
            for folder_of_part, _ in parts
            if (folder_of_part / EMPTY_TEXT).is_file()
        ]
        self.empty_text: Text | None = read_text(text_files[0]) if text_files else None

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def sizes(self) -> torch.Tensor:
        """(n, 2): height and width in pixels of the image of each sample's latents."""
        return self._sizes

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> Sample:
        number = bisect_right(self._ends, index)
        row = index - (self._ends[number - 1] if number else 0)
        try:
            return self._files.get(number).read(row)
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptSampleError(
                f"{self._paths[number].name}:{row}", f"cannot be read: {error}"
            ) from error

    def size_of(self, index: int) -> Size:
        height, width = self._sizes[index].tolist()
        return height, width

    def close(self) -> None:
        self._files.close()

    def _open(self, number: int) -> PrecomputedShard:
        return PrecomputedShard(self._paths[number])

    def _read_shapes_checked(self, path: Path, entry: FinishedShard, index: PrecomputedIndex) -> torch.Tensor:
        shard = PrecomputedShard(path)
        try:
            if len(shard) != entry.num_samples:
                rule = f"holds {len(shard)} samples, its index says {entry.num_samples}"
                raise DataError(path, f"{rule}; precompute again")
            if dict(shard.metadata) != index.made_by.as_metadata():
                rule = f"was made with {dict(shard.metadata)}, its index says {index.made_by.as_metadata()}"
                raise DataError(path, f"{rule}; precompute again")
            return shard.latent_shapes
        finally:
            shard.close()


def _identity_of(parts: list[tuple[Path, PrecomputedIndex]]) -> str:
    entry = [(index.made_by, shard) for _, index in parts for shard in index.shards]
    return hashlib.sha256(repr(entry).encode()).hexdigest()
