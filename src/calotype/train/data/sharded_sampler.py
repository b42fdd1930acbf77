"""The endless order of samples in remote shards: shuffled within a window of a few shards at a time.

Like `sampler.EpochSampler` it is a function of the position alone, so the number of ranks does not change it.
All shards are put into one seeded order, which is cut into lanes of equal length; micro-batches take lanes in
turn. A rank whose turns always fall on the same lanes needs only the shards of those. Within a lane each
epoch has its own order of shards, which are shuffled one window at a time.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from calotype.train.data.hashing import round_keys, shuffled

_SHARDS, _PIECES, _SAMPLES = 11, 12, 13
_MAX_CACHED = 256


@dataclass(frozen=True)
class Mixing:
    """How samples are shuffled."""

    seed: int
    shuffle: bool = True
    window: int = 16
    """The number of shards that are shuffled together."""
    lanes: int = 1
    granule: int = 1
    """Consecutive samples from one lane: a micro-batch."""


@dataclass(frozen=True)
class _Piece:
    """A range of samples of one shard, by their indices in the whole dataset."""

    begin: int
    length: int


class ShardedSampler:
    """The sample at each position of an endless sequence."""

    def __init__(self, sizes: Sequence[int], mixing: Mixing) -> None:
        self.num_samples, self.seed = sum(sizes), mixing.seed
        self._mixing = mixing
        self._lanes = self._cut(sizes, min(mixing.lanes, self.num_samples))
        self._lengths = [sum(piece.length for piece in pieces) for pieces in self._lanes]
        self._epochs: OrderedDict[tuple[int, int], tuple[list[_Piece], list[int]]] = OrderedDict()

    def index(self, position: int) -> int:
        """The sample at `position`; each sample of a lane occurs exactly once in an epoch of the lane."""
        turn, within = divmod(position, self._mixing.granule)
        round_number, lane = divmod(turn, len(self._lanes))
        epoch, place = divmod(round_number * self._mixing.granule + within, self._lengths[lane])
        pieces, ends = self._epoch(lane, epoch)
        if self._mixing.shuffle:
            place = self._shuffle_in_window(place, ends, lane, epoch)
        piece_index = bisect_right(ends, place)
        return pieces[piece_index].begin + place - (ends[piece_index] - pieces[piece_index].length)

    def _shuffle_in_window(self, place: int, ends: list[int], lane: int, epoch: int) -> int:
        """The shuffled position, within the same window."""
        width = self._mixing.window
        window = bisect_right(ends, place) // width
        start = ends[window * width - 1] if window else 0
        length = ends[min((window + 1) * width, len(ends)) - 1] - start
        return start + shuffled(place - start, length, round_keys(self.seed, _SAMPLES, lane, epoch, window))

    def _epoch(self, lane: int, epoch: int) -> tuple[list[_Piece], list[int]]:
        """The lane's pieces in the order of that epoch, and where each ends."""
        cached = self._epochs.get((lane, epoch))
        if cached is None:
            pieces = self._lanes[lane]
            if self._mixing.shuffle:
                keys = round_keys(self.seed, _PIECES, lane, epoch)
                pieces = [pieces[shuffled(place, len(pieces), keys)] for place in range(len(pieces))]
            cached = self._epochs[lane, epoch] = pieces, list(accumulate(piece.length for piece in pieces))
            while len(self._epochs) > _MAX_CACHED:
                self._epochs.popitem(last=False)
        return cached

    def _cut(self, sizes: Sequence[int], count: int) -> list[list[_Piece]]:
        """All shards in one order, cut into lanes whose lengths differ by at most one sample."""
        starts = [0, *accumulate(sizes)]
        row = list(range(len(sizes)))
        if self._mixing.shuffle:
            keys = round_keys(self.seed, _SHARDS)
            row = [shuffled(place, len(sizes), keys) for place in row]
        cuts = [self.num_samples * number // count for number in range(1, count + 1)]
        lanes: list[list[_Piece]] = [[]]
        at = 0
        for shard in row:
            begin, remaining = starts[shard], sizes[shard]
            while remaining:
                length = min(remaining, cuts[len(lanes) - 1] - at)
                lanes[-1].append(_Piece(begin, length))
                begin, remaining, at = begin + length, remaining - length, at + length
                if at == cuts[len(lanes) - 1] and len(lanes) < count:
                    lanes.append([])
        return lanes
