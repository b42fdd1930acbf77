"""Build the data loader of a recipe's data section: one rank's share of the samples in batches.

The position of a run is one number, kept by the trainer: the samples that all ranks have consumed together. A
data loader opened with it continues with the next batches, whatever the number of workers and ranks.
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
    """What is known of the dataset before the first batch."""

    num_samples: int | None
    """In one epoch; None if the data is endless."""
    identity: str
    """Changes with the list of samples, which makes a saved position meaningless."""
    empty_text: Text | None
    """The embedding of the empty caption, if captions come as embeddings."""


class DataLoader(Iterator[Batch]):
    """Iterates over this rank's batches. Use it as a context manager, or close it.

    Batches are on the CPU, pinned if the device is a GPU; synthetic and cached data is on the device.
    """

    def __init__(
        self,
        micro_batches: Iterator[Delivery],
        share: RankShard,
        info: DatasetInfo,
        bad_samples: BadSampleCounter,
        source: Source | None = None,
    ) -> None:
        self._micro_batches: Iterator[Delivery] | None = micro_batches
        self._share, self._bad_samples, self._source = share, bad_samples, source
        self._num_batches = 0
        self.facts = info

    def __next__(self) -> Batch:
        if self._micro_batches is None:
            raise ValueError("the data loader is closed")
        while True:
            micro_batch = next(self._micro_batches)
            self._bad_samples.add(micro_batch.unreadable)
            if micro_batch.failure is not None:
                raise DataError("data", micro_batch.failure)
            if micro_batch.batch is not None:
                self._num_batches += 1
                return micro_batch.batch

    @property
    def samples_seen(self) -> int:
        """Samples consumed by all ranks, if each has taken as many batches as this one."""
        return self._share.seen_after(self._num_batches)

    def report(self) -> BadSampleReport:
        """Samples this rank could not read in the batches so far, in whichever worker."""
        return self._bad_samples.report()

    def close(self) -> None:
        """Stop the workers; batches they have ready are dropped."""
        # torch's loader stops its workers when it is garbage-collected.
        self._micro_batches = None
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
    """An endless data loader of this rank's micro-batches, from `samples_seen` samples of all ranks on.

    `encode` is the training's autoencoder, needed if latents are cached. `progress` shows the work before the
    first batch: decoding and encoding, if everything is cached in memory.
    """
    share = RankShard(rank, world_size, micro_batch_size, samples_seen)
    bad_samples = BadSampleCounter(part.most_corrupt)
    if part.kind in SYNTHETIC:
        warn_of_ignored(part)
        synthetic = Synthetic(needs, part.seed, encoded=part.kind == "synthetic_latents")
        info = DatasetInfo(None, f"{part.kind}-{part.seed}", synthetic.empty_text)
        return DataLoader(_synthetic_batches(synthetic, share), share, info, bad_samples)
    source = build_source(part, needs)
    bad_samples.add(source.damage)
    batch_sampler, collator = build_batch_sampler(source, part, needs, share), Collator(part, needs)
    cache: CacheBackend | None = None
    if part.in_memory and part.kind != "precomputed":
        source, cache = cached_source = cache_all(source, collator, progress)
        if part.keep_latents and encode is not None:
            cache = encode_all(cached_source[1], encode, needs.device, micro_batch_size, progress)
    dataset = MicroBatchDataset(source, batch_sampler, collator, micro_batch_size)
    micro_batches = loaded(dataset, count(), part.num_workers, pin=needs.device.type == "cuda")
    if cache is not None:
        micro_batches = map(cache.put_into, micro_batches)
    return DataLoader(micro_batches, share, _dataset_info(source), bad_samples, source)


def build_single_pass(
    part: DataConfig,
    needs: DataRequirements,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro_batch_size: int,
    first: int | None = None,
) -> DataLoader:
    """A data loader that yields every sample once: for precomputing. Unreadable samples are not replaced.

    `first` skips the positions before it; see `PrecomputedWriter.next_position`.
    """
    share = RankShard(rank, world_size, micro_batch_size)
    bad_samples = BadSampleCounter(part.most_corrupt)
    if part.in_memory:
        _log.warning("data.in_memory=True has no effect where every sample is read once")
    source = build_source(part, needs)
    bad_samples.add(source.damage)
    batch_sampler = SinglePassBatchSampler(buckets_of(source, part, needs, least=1), share, first)
    dataset = MicroBatchDataset(source, batch_sampler, Collator(part, needs), micro_batch_size)
    micro_batches = loaded(
        dataset, range(len(batch_sampler)), part.num_workers, pin=needs.device.type == "cuda"
    )
    return DataLoader(micro_batches, share, _dataset_info(source), bad_samples, source)


def _dataset_info(source: Source) -> DatasetInfo:
    return DatasetInfo(len(source), source.identity, source.empty_text)


def _synthetic_batches(synthetic: Synthetic, share: RankShard) -> Iterator[Delivery]:
    for number in count():
        yield Delivery(synthetic.batch(share.start(number), share.micro_batch_size))
