"""Choose the samples of each micro-batch: sequentially, by bucket, or in a single pass.

The choice is a pure function of the micro-batch's number, so workers need no communication and a resumed run
needs no replay. It yields more samples than a micro-batch holds: the rest replace unreadable ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Protocol

from calotype.train.data.aspect_buckets import Bucket
from calotype.train.data.hashing import mixed, round_keys, shuffled
from calotype.train.data.image_transforms import Size
from calotype.train.data.sampler import EpochSampler, RankShard
from calotype.train.data.sharded_sampler import ShardedSampler

_GROUP_ORDER = 1
_BUCKET = 2


@dataclass(frozen=True)
class SampleRef:
    """A sample to read, and how to transform it."""

    index: int
    position: int
    target: Size
    draw: int
    """The random number for this visit of the sample: crop, flip, and the choice among captions."""
    num_candidates: int
    """The number of samples that this one was chosen from."""


class BatchSampler(Protocol):
    """Yields the samples to read."""

    def samples(self, number: int) -> Iterator[SampleRef]:
        """Samples for this rank's micro-batch `number`, in order of preference."""
        ...


@dataclass(frozen=True)
class SequentialBatchSampler:
    """All images at one size, in the order of the epoch sampler."""

    order: EpochSampler | ShardedSampler
    share: RankShard
    target: Size

    def samples(self, number: int) -> Iterator[SampleRef]:
        for position in count(self.share.start(number)):
            draw = mixed(self.order.seed, position)
            index = self.order.index(position)
            yield SampleRef(index, position, self.target, draw, self.order.num_samples)


class BucketBatchSampler:
    """Micro-batches of one bucket each.

    Every bucket has its own endless order, cut into groups of a micro-batch. An epoch consists of all groups
    that are full by then, shuffled; samples that do not fill a group move to the next epoch. The number of
    full groups after some epochs follows from a division, so no epoch has to be replayed. Ranks take groups
    in turn. Only another micro-batch size changes the groups.
    """

    def __init__(self, buckets: Sequence[Bucket], share: RankShard, seed: int, *, shuffle: bool) -> None:
        self._buckets, self._share, self._seed, self._shuffle = list(buckets), share, seed, shuffle
        self._orders = [
            EpochSampler(len(bucket.members), mixed(seed, _BUCKET, *bucket.size), shuffle)
            for bucket in buckets
        ]
        self._num_samples = sum(order.num_samples for order in self._orders)

    def samples(self, number: int) -> Iterator[SampleRef]:
        size = self._share.micro_batch_size
        bucket_index, group = self._locate(self._share.start(number) // size)
        bucket, order = self._buckets[bucket_index], self._orders[bucket_index]
        for position in count(group * size):
            index = int(bucket.members[order.index(position)])
            yield SampleRef(index, position, bucket.size, mixed(order.seed, position), order.num_samples)

    def _locate(self, turn: int) -> tuple[int, int]:
        """The bucket of this turn, and the number of its group."""
        epoch = max(turn * self._share.micro_batch_size // self._num_samples - 1, 0)
        while sum(self._full_groups(epoch + 1)) <= turn:
            epoch += 1
        before, after = self._full_groups(epoch), self._full_groups(epoch + 1)
        length, place = sum(after) - sum(before), turn - sum(before)
        if self._shuffle:
            place = shuffled(place, length, round_keys(self._seed, _GROUP_ORDER, epoch))
        ends = list(accumulate(a - b for a, b in zip(after, before, strict=True)))
        bucket_index = next(b for b, end in enumerate(ends) if place < end)
        return bucket_index, after[bucket_index] - (ends[bucket_index] - place)

    def _full_groups(self, num_epochs: int) -> list[int]:
        size = self._share.micro_batch_size
        return [num_epochs * order.num_samples // size for order in self._orders]


class SinglePassBatchSampler:
    """Every sample once, for work before training. Unreadable samples are not replaced.

    The sequence goes bucket by bucket; each rank has one contiguous piece of it, so that its output is in
    order.
    """

    def __init__(self, buckets: Sequence[Bucket], share: RankShard, first: int | None) -> None:
        self._buckets = list(buckets)
        self._ends = list(accumulate(len(bucket.members) for bucket in buckets))
        total = self._ends[-1]
        begin, end = (total * rank // share.world_size for rank in (share.rank, share.rank + 1))
        self._pieces = self._cut(max(begin, first or 0), end, share.micro_batch_size)

    def __len__(self) -> int:
        """The number of micro-batches of this rank."""
        return len(self._pieces)

    def samples(self, number: int) -> Iterator[SampleRef]:
        bucket_index, begin, end = self._pieces[number]
        bucket = self._buckets[bucket_index]
        offset = self._ends[bucket_index] - len(bucket.members)
        for position in range(begin, end):
            index = int(bucket.members[position - offset])
            yield SampleRef(index, position, bucket.size, mixed(position), self._ends[-1])

    def _cut(self, begin: int, end: int, size: int) -> list[tuple[int, int, int]]:
        pieces, start = [], 0
        for bucket_index, bucket_end in enumerate(self._ends):
            low, high = max(begin, start), min(end, bucket_end)
            pieces += [(bucket_index, at, min(at + size, high)) for at in range(low, high, size)]
            start = bucket_end
        return pieces
