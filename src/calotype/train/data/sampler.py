"""The endless order of samples, and the share of it that each rank reads.

The whole state is one number, the samples that all ranks have consumed together. Epochs follow each other
without a gap, so a micro-batch may hold the end of one and the start of the next, and no sample is dropped.
"""

from dataclasses import dataclass
from functools import lru_cache

from calotype.core.errors import Problem, RequestError
from calotype.train.data.hashing import round_keys, shuffled


@dataclass(frozen=True)
class EpochSampler:
    """The sample at each position of an endless sequence of epochs."""

    num_samples: int
    seed: int
    shuffle: bool = True

    def index(self, position: int) -> int:
        """The sample at `position`; each occurs exactly once per epoch."""
        epoch, place = divmod(position, self.num_samples)
        if not self.shuffle:
            return place
        return shuffled(place, self.num_samples, _keys_of_epoch(self.seed, epoch))


@dataclass(frozen=True)
class RankShard:
    """This rank's share of the sequence: one micro-batch in every round over all ranks."""

    rank: int
    world_size: int
    micro_batch_size: int
    samples_seen: int = 0
    """Consumed by all ranks together before micro-batch 0."""

    def __post_init__(self) -> None:
        problems = [
            Problem(name, f"{value} is below {least}", value)
            for name, value, least in (
                ("rank", self.rank, 0),
                ("world_size", self.world_size, 1),
                ("micro_batch_size", self.micro_batch_size, 1),
                ("samples_seen", self.samples_seen, 0),
            )
            if value < least
        ]
        if self.rank >= self.world_size:
            rule = f"{self.rank} is not one of 0..{self.world_size - 1}; ranks count from 0"
            problems.append(Problem("rank", rule, self.rank))
        if problems:
            raise RequestError(problems)

    def start(self, number: int) -> int:
        """The position of the first sample of this rank's micro-batch `number`."""
        return self.samples_seen + (number * self.world_size + self.rank) * self.micro_batch_size

    def seen_after(self, num_micro_batches: int) -> int:
        """Samples consumed by all ranks after each has had `num_micro_batches` micro-batches."""
        return self.samples_seen + num_micro_batches * self.world_size * self.micro_batch_size


@lru_cache(maxsize=64)
def _keys_of_epoch(seed: int, epoch: int) -> tuple[int, ...]:
    return round_keys(seed, epoch)
