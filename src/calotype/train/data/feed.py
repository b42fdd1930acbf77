"""Opens the data a recipe names and hands out one rank's share of it in batches. Knows nothing of training.

Where a run stands is one number, kept by the loop: the samples all ranks have consumed together. A feed that
is opened with it gives the batches that would have come next, whatever the number of workers; and, all ranks
together, whatever the number of ranks.
"""

import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Self, TypeVar

import torch
from torch.utils.data import DataLoader

from calotype.spec.recipe import DataPart
from calotype.train.data.batch import Batch, Text
from calotype.train.data.micro_batches import Delivery, MicroBatches
from calotype.train.data.needs import Needs
from calotype.train.data.opening import SYNTHETIC, buckets_of, open_plan, open_source, warn_of_ignored
from calotype.train.data.order import Share
from calotype.train.data.plan import PassPlan
from calotype.train.data.preparation import Preparation
from calotype.train.data.report import DataError, Report, Tally
from calotype.train.data.sample import Source
from calotype.train.data.synthetic import Synthetic
from calotype.train.data.worker_signals import heed_parent_only, held_back

_log = logging.getLogger(__name__)

_PREFETCHED_PER_WORKER = 2
Thing = TypeVar("Thing")


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

    Batches are on the CPU, pinned if the device is a GPU; synthetic ones are on the device already.
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
            delivery = _next_of(self._deliveries)
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
) -> Feed:
    """An endless feed of this rank's micro-batches, going on after `samples_seen` samples of all ranks."""
    share = Share(rank, world_size, micro_batch_size, samples_seen)
    tally = Tally(part.most_corrupt)
    if part.kind in SYNTHETIC:
        warn_of_ignored(part)
        synthetic = Synthetic(needs, part.seed, encoded=part.kind == "synthetic_latents")
        facts = Facts(None, f"{part.kind}-{part.seed}", synthetic.empty_text)
        return Feed(_made_up(synthetic, share), share, facts, tally)
    source = open_source(part, needs)
    tally.add(source.damage)
    plan = open_plan(source, part, needs, share)
    dataset = MicroBatches(source, plan, Preparation(part, needs), micro_batch_size)
    return Feed(_loaded(dataset, count(), part, needs), share, _facts(source), tally, source)


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
    source = open_source(part, needs)
    tally.add(source.damage)
    plan = PassPlan(buckets_of(source, part, needs, least=1), share, first)
    dataset = MicroBatches(source, plan, Preparation(part, needs), micro_batch_size)
    return Feed(_loaded(dataset, range(len(plan)), part, needs), share, _facts(source), tally, source)


def _facts(source: Source) -> Facts:
    return Facts(len(source), source.identity, source.empty_text)


def _made_up(synthetic: Synthetic, share: Share) -> Iterator[Delivery]:
    for number in count():
        yield Delivery(synthetic.batch(share.start(number), share.micro_batch_size))


def _loaded(
    dataset: MicroBatches, numbers: Iterable[int], part: DataPart, needs: Needs
) -> Iterator[Delivery]:
    cores = len(os.sched_getaffinity(0))
    if part.num_workers > cores:
        _log.warning("data.num_workers=%d is more than the %d cores there are", part.num_workers, cores)
    with warnings.catch_warnings(), held_back():
        # Torch says the same at greater length.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = DataLoader(
            dataset,
            batch_size=None,
            sampler=numbers,
            num_workers=part.num_workers,
            prefetch_factor=_PREFETCHED_PER_WORKER if part.num_workers else None,
            collate_fn=_as_it_is,
            pin_memory=needs.device.type == "cuda",
            worker_init_fn=heed_parent_only,
            # Without one of its own, the loader would draw from the generator the training draws from.
            generator=torch.Generator(),
        )
        return iter(loader)


def _next_of(deliveries: Iterator[Delivery]) -> Delivery:
    try:
        return next(deliveries)
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        fix = "if memory ran out, lower data.num_workers or give the container a larger /dev/shm"
        raise DataError("data.num_workers", f"a worker process died: {error}; {fix}") from error


def _as_it_is(thing: Thing) -> Thing:
    return thing
