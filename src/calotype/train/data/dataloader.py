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
from calotype.spec.recipe_sections import DataPart
from calotype.train.data.bad_samples import DataError, Report, Tally
from calotype.train.data.batch_sampler import PassPlan
from calotype.train.data.collate import Preparation
from calotype.train.data.dataset import Delivery, MicroBatches
from calotype.train.data.factory import SYNTHETIC, buckets_of, open_plan, open_source, warn_of_ignored
from calotype.train.data.requirements import Needs
from calotype.train.data.sampler import Share
from calotype.train.data.sources.in_memory import Encode, Kept, encode_all, keep_all
from calotype.train.data.sources.synthetic import Synthetic
from calotype.train.data.types import Batch, Source, Text
from calotype.train.data.workers import loaded

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Facts:
    """What is known of the data before the first batch."""

    num_samples: int | None
    """In one epoch; None when there is no end to them."""
    identity: str
    """Changes when the list of samples does, which makes a saved position meaningless."""
    empty_text: Text | None
    """The empty caption's embedding, where captions come as embeddings."""


class Feed(Iterator[Batch]):
    """This rank's batches, one after the other. Use as a context manager, or close it.

    Batches are on the CPU, pinned if the device is a GPU; what is made up or kept there is on the device.
    """

    def __init__(
        self,
        deliveries: Iterator[Delivery],
        share: Share,
        facts: Facts,
        tally: Tally,
        source: Source | None = None,
    ) -> None:
        self._deliveries: Iterator[Delivery] | None = deliveries
        self._share, self._tally, self._source = share, tally, source
        self._num_handed_out = 0
        self.facts = facts

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

    def report(self) -> Report:
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


def open_feed(
    part: DataPart,
    needs: Needs,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro_batch_size: int,
    samples_seen: int = 0,
    encode: Encode | None = None,
    progress: Progress | None = None,
) -> Feed:
    """An endless feed of this rank's micro-batches, going on after `samples_seen` samples of all ranks.

    `encode` is the training's autoencoder, where latents are to be kept. `progress` watches what has to be
    done before the first batch: decoding and encoding, where everything is kept in memory.
    """
    share = Share(rank, world_size, micro_batch_size, samples_seen)
    tally = Tally(part.most_corrupt)
    if part.kind in SYNTHETIC:
        warn_of_ignored(part)
        synthetic = Synthetic(needs, part.seed, encoded=part.kind == "synthetic_latents")
        facts = Facts(None, f"{part.kind}-{part.seed}", synthetic.empty_text)
        return Feed(_made_up(synthetic, share), share, facts, tally)
    source = open_source(part, needs)
    tally.add(source.damage)
    plan, preparation = open_plan(source, part, needs, share), Preparation(part, needs)
    kept: Kept | None = None
    if part.in_memory and part.kind != "precomputed":
        source, kept = pictures = keep_all(source, preparation, progress)
        if part.keep_latents and encode is not None:
            kept = encode_all(pictures[1], encode, needs.device, micro_batch_size, progress)
    dataset = MicroBatches(source, plan, preparation, micro_batch_size)
    deliveries = loaded(dataset, count(), part.num_workers, pin=needs.device.type == "cuda")
    if kept is not None:
        deliveries = map(kept.put_into, deliveries)
    return Feed(deliveries, share, _facts(source), tally, source)


def open_pass(
    part: DataPart,
    needs: Needs,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro_batch_size: int,
    first: int | None = None,
) -> Feed:
    """Every sample once, and then the end: for precomputing. Nothing stands in for unreadable samples.

    `first` skips the positions before it; it is what `PrecomputedWriter.next_position` says.
    """
    share = Share(rank, world_size, micro_batch_size)
    tally = Tally(part.most_corrupt)
    if part.in_memory:
        _log.warning("data.in_memory=True has no effect where every sample is read once")
    source = open_source(part, needs)
    tally.add(source.damage)
    plan = PassPlan(buckets_of(source, part, needs, least=1), share, first)
    dataset = MicroBatches(source, plan, Preparation(part, needs), micro_batch_size)
    deliveries = loaded(dataset, range(len(plan)), part.num_workers, pin=needs.device.type == "cuda")
    return Feed(deliveries, share, _facts(source), tally, source)


def _facts(source: Source) -> Facts:
    return Facts(len(source), source.identity, source.empty_text)


def _made_up(synthetic: Synthetic, share: Share) -> Iterator[Delivery]:
    for number in count():
        yield Delivery(synthetic.batch(share.start(number), share.micro_batch_size))
