"""A source over remote shards that are downloaded on demand into a cache of limited size.

An index lists in advance what each shard holds, so the order of samples is known before any download. The
source of its format then reads each shard.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from calotype.train.data.bad_samples import BadSample, DataError
from calotype.train.data.image_transforms import Size
from calotype.train.data.sources.file_pool import OpenFiles
from calotype.train.data.sources.node_cache import Lease, NodeCache, RemoteFile
from calotype.train.data.types import Sample, Source, Text

HELD_OPEN = 4
"""The number of shards that one process keeps from eviction."""


@dataclass(frozen=True)
class RemoteShard:
    file: RemoteFile
    num_samples: int
    opened: Callable[[Path], Source]
    """Opens the shard from a local path."""


class _LeasedShard:
    """A local shard that is being read."""

    def __init__(self, shard: RemoteShard, cache: NodeCache) -> None:
        self._lease: Lease = cache.lease(shard.file)
        try:
            self.source = shard.opened(self._lease.path)
            if len(self.source) != shard.num_samples:
                rule = f"holds {len(self.source)} samples, the index says {shard.num_samples}"
                raise DataError(shard.file.url, f"{rule}; make the index again")
        except BaseException:
            self._lease.close()
            raise

    def close(self) -> None:
        self.source.close()
        self._lease.close()


class StreamedSource:
    """The samples of all shards, shard after shard."""

    damage: tuple[BadSample, ...] = ()
    empty_text: Text | None = None

    def __init__(self, shards: Sequence[RemoteShard], cache: NodeCache) -> None:
        self._shards, self._cache = list(shards), cache
        self._ends = list(accumulate(shard.num_samples for shard in shards))
        self._open_shards = OpenFiles(self._lease_shard, HELD_OPEN)

    @property
    def shard_sizes(self) -> list[int]:
        """The number of samples in each shard."""
        return [shard.num_samples for shard in self._shards]

    @property
    def identity(self) -> str:
        """From names and sizes, so that the same shards at another URL have the same identity."""
        facts = [(shard.file.name, shard.file.size_bytes, shard.num_samples) for shard in self._shards]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> Sample:
        leased, row = self._place(index)
        return leased.source.read(row)

    def size_of(self, index: int) -> Size | None:
        leased, row = self._place(index)
        return leased.source.size_of(row)

    def close(self) -> None:
        self._open_shards.close()

    def _lease_shard(self, number: int) -> _LeasedShard:
        return _LeasedShard(self._shards[number], self._cache)

    def _place(self, index: int) -> tuple[_LeasedShard, int]:
        number = bisect_right(self._ends, index)
        return self._open_shards.get(number), index - (self._ends[number - 1] if number else 0)
