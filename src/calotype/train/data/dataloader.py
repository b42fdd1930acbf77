"""Opens the data a recipe names and hands out one rank's share of it in batches. Knows nothing of training.

Where a run stands is one number, kept by the loop: the samples all ranks have consumed together. A feed that
is opened with it gives the batches that would have come next, whatever the number of workers; and, all ranks
together, whatever the number of ranks.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Self

from calotype.core.progress import Progress
from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.bad_samples import BadSampleCounter, BadSampleReport, DataError
from calotype.train.data.batch_sampler import SinglePassBatchSampler
from calotype.train.data.collate import Collator
from calotype.train.data.dataset import Delivery, MicroBatchDataset
from calotype.train.data.factory import (
    SYNTHETIC,
    buckets_of,
    build_batch_sampler,
    build_source,
    warn_of_ignored,
)
from calotype.train.data.requirements import DataRequirements
from calotype.train.data.sampler import RankShard
from calotype.train.data.sources.in_memory import CacheBackend, Encode, cache_all, encode_all
from calotype.train.data.sources.synthetic import Synthetic
from calotype.train.data.types import Batch, Source, Text
from calotype.train.data.workers import loaded

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of the data before the first batch."""

    num_samples: int | None
    """In one epoch; None when there is no end to them."""
    identity: str
    """Changes when the list of samples does, which makes a saved position meaningless."""
    empty_text: Text | None
    """The empty caption's embedding, where captions come as embeddings."""


class DataLoader(Iterator[Batch]):
    """This rank's batches, one after the other. Use as a context manager, or close it.

    Batches are on the CPU, pinned if the device is a GPU; what is made up or kept there is on the device.
    """

    def __init__(
        self,
        deliveries: Iterator[Delivery],
        share: RankShard,
        info: DatasetInfo,
        tally: BadSampleCounter,
        source: Source | None = None,
    ) -> None:
        self._deliveries: Iterator[Delivery] | None = deliveries
        self._share, self._tally, self._source = share, tally, source
        self._num_handed_out = 0
        self.facts = info

    def __next__(self) -> Batch:
        if self._deliveries is None:
            raise ValueError("the feed is closed")
        while True:
            delivery = next(self._deliveries)
            self._tally.add(delivery.unreadable)
            if delivery.failure is not None:
                raise DataError("data", delivery.failure)
            if delivery.batch is not None:
                self._num_handed_out += 1
                return delivery.batch

    @property
    def samples_seen(self) -> int:
        """Samples consumed by all ranks, if each has taken as many batches as this one."""
        return self._share.seen_after(self._num_handed_out)

    def report(self) -> BadSampleReport:
        """Samples this rank could not read in the batches handed out so far, whichever worker met them."""
        return self._tally.report()

    def close(self) -> None:
        """Stop the workers; batches they had ready are dropped."""
        # Torch's loader stops its workers when it is let go of.
        self._deliveries = None
        if self._source is not None:
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def build_dataloader(
    part: DataConfig,
    needs: DataRequirements,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro_batch_size: int,
    samples_seen: int = 0,
    encode: Encode | None = None,
    progress: Progress | None = None,
) -> DataLoader:
    """An endless feed of this rank's micro-batches, going on after `samples_seen` samples of all ranks.

    `encode` is the training's autoencoder, where latents are to be kept. `progress` watches what has to be
    done before the first batch: decoding and encoding, where everything is kept in memory.
    """
    share = RankShard(rank, world_size, micro_batch_size, samples_seen)
    tally = BadSampleCounter(part.most_corrupt)
    if part.kind in SYNTHETIC:
        warn_of_ignored(part)
        synthetic = Synthetic(needs, part.seed, encoded=part.kind == "synthetic_latents")
        info = DatasetInfo(None, f"{part.kind}-{part.seed}", synthetic.empty_text)
        return DataLoader(_made_up(synthetic, share), share, info, tally)
    source = build_source(part, needs)
    tally.add(source.damage)
    plan, preparation = build_batch_sampler(source, part, needs, share), Collator(part, needs)
    kept: CacheBackend | None = None
    if part.in_memory and part.kind != "precomputed":
        source, kept = pictures = cache_all(source, preparation, progress)
        if part.keep_latents and encode is not None:
            kept = encode_all(pictures[1], encode, needs.device, micro_batch_size, progress)
    dataset = MicroBatchDataset(source, plan, preparation, micro_batch_size)
    deliveries = loaded(dataset, count(), part.num_workers, pin=needs.device.type == "cuda")
    if kept is not None:
        deliveries = map(kept.put_into, deliveries)
    return DataLoader(deliveries, share, _facts(source), tally, source)


def build_single_pass(
    part: DataConfig,
    needs: DataRequirements,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro_batch_size: int,
    first: int | None = None,
) -> DataLoader:
    """Every sample once, and then the end: for precomputing. Nothing stands in for unreadable samples.

    `first` skips the positions before it; it is what `PrecomputedWriter.next_position` says.
    """
    share = RankShard(rank, world_size, micro_batch_size)
    tally = BadSampleCounter(part.most_corrupt)
    if part.in_memory:
        _log.warning("data.in_memory=True has no effect where every sample is read once")
    source = build_source(part, needs)
    tally.add(source.damage)
    plan = SinglePassBatchSampler(buckets_of(source, part, needs, least=1), share, first)
    dataset = MicroBatchDataset(source, plan, Collator(part, needs), micro_batch_size)
    deliveries = loaded(dataset, range(len(plan)), part.num_workers, pin=needs.device.type == "cuda")
    return DataLoader(deliveries, share, _facts(source), tally, source)


def _facts(source: Source) -> DatasetInfo:
    return DatasetInfo(len(source), source.identity, source.empty_text)


def _made_up(synthetic: Synthetic, share: RankShard) -> Iterator[Delivery]:
    for number in count():
        yield Delivery(synthetic.batch(share.start(number), share.micro_batch_size))
