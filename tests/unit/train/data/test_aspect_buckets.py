"""Buckets: sizes of equal area, batches of one size, and still every sample of every epoch."""

import math
from collections import Counter
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.train.data.aspect_buckets import Bucket, bucket_sizes, sorted_into
from calotype.train.data.batch_sampler import BucketBatchSampler, SampleRef, SinglePassBatchSampler
from calotype.train.data.sampler import RankShard


def buckets_with(counts: list[int]) -> list[Bucket]:
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    return [
        Bucket((16, 16 * (n + 1)), torch.arange(end - count, end))
        for n, (count, end) in enumerate(zip(counts, ends, strict=True))
    ]


def groups(
    counts: list[int], micro: int, turns: int, *, world: int = 1, seen: int = 0, seed: int = 5
) -> list[list[SampleRef]]:
    """The micro-batches of all ranks, in the global order."""
    plans = [
        BucketBatchSampler(buckets_with(counts), RankShard(r, world, micro, seen), seed, shuffle=True)
        for r in range(world)
    ]
    numbers = range(math.ceil(turns / world))
    return [list(islice(plan.samples(number), micro)) for number in numbers for plan in plans][:turns]


@pytest.mark.parametrize("resolution", [64, 128, 256, 512, 768, 1024])
def test_sizes_have_the_area_of_the_square_and_sides_the_model_can_take(resolution: int) -> None:
    sizes = bucket_sizes(resolution)
    step = min(64, resolution // 8)
    assert (resolution, resolution) in sizes
    assert len(set(sizes)) == len(sizes) >= 9
    for height, width in sizes:
        assert height % step == width % step == 0
        assert resolution**2 * 0.7 < height * width <= resolution**2
        assert max(height, width) <= 4 * min(height, width)
    assert {(width, height) for height, width in sizes} & set(sizes) > {(resolution, resolution)}


def test_pictures_go_to_the_nearest_shape() -> None:
    sizes = torch.tensor([[100, 100], [90, 110], [100, 400], [1000, 260], [0, 0]])
    buckets = sorted_into(sizes, [(512, 512), (256, 1024), (1024, 256)], least=1)
    assert {bucket.size: bucket.members.tolist() for bucket in buckets} == {
        (256, 1024): [2],
        (512, 512): [0, 1, 4],
        (1024, 256): [3],
    }


def test_pictures_of_unknown_size_never_have_a_bucket_to_themselves() -> None:
    sizes = torch.tensor([[0, 0]] * 5 + [[100, 400]] * 2 + [[400, 100]])
    buckets = sorted_into(sizes, [(512, 512), (256, 1024), (1024, 256)], least=1)
    assert {bucket.size: bucket.members.tolist() for bucket in buckets} == {
        (256, 1024): [0, 1, 2, 3, 4, 5, 6],
        (1024, 256): [7],
    }
    [only] = sorted_into(sizes[:5], [(512, 512), (256, 1024)], least=1)
    assert only.size == (512, 512)


def test_a_bucket_too_small_for_a_batch_joins_its_neighbour() -> None:
    sizes = torch.tensor([[100, 100]] * 6 + [[100, 400]] * 2 + [[100, 300]] * 3)
    buckets = sorted_into(sizes, [(16, 16), (16, 48), (16, 64)], least=4)
    assert {bucket.size: len(bucket.members) for bucket in buckets} == {(16, 16): 6, (16, 48): 5}
    alone = sorted_into(sizes, [(16, 16), (16, 48), (16, 64)], least=100)
    assert [(bucket.size, len(bucket.members)) for bucket in alone] == [((16, 16), 11)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 7), st.integers(0, 1000))
def test_every_micro_batch_is_of_one_bucket_and_nothing_is_lost(
    counts: list[int], micro: int, seed: int
) -> None:
    """After three epochs each bucket has been read from its start, without a gap, as far as batches fill."""
    full_groups = [3 * count // micro for count in counts]
    positions: dict[tuple[int, int], list[int]] = {bucket.size: [] for bucket in buckets_with(counts)}
    for group in groups(counts, micro, turns=sum(full_groups), seed=seed):
        [size] = {pick.target for pick in group}
        positions[size] += [pick.position for pick in group]
    for bucket, full in zip(buckets_with(counts), full_groups, strict=True):
        assert sorted(positions[bucket.size]) == list(range(full * micro))


def test_when_batches_divide_the_buckets_an_epoch_is_exactly_every_sample_once() -> None:
    made = groups([12, 8, 20], 4, turns=20)
    for epoch in (made[:10], made[10:]):
        assert sorted(pick.index for group in epoch for pick in group) == list(range(40))
    assert [pick.index for group in made[:10] for pick in group] != [p.index for g in made[10:] for p in g]


def test_what_does_not_fill_a_batch_comes_in_the_next_epoch() -> None:
    """Three epochs of 10 in fours: 2, 2 and 3 groups are full; the last sample of 28 + 2 waits."""
    made = groups([10], 4, turns=7)
    read = Counter(pick.index for group in made for pick in group)
    assert sum(read.values()) == 28
    assert min(read.values()) == 2
    assert max(read.values()) == 3


@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_number_of_ranks_reads_one_global_sequence_and_resumes_in_it(world: int) -> None:
    whole = groups([13, 6, 22], 3, turns=60)
    assert groups([13, 6, 22], 3, turns=60, world=world) == whole
    assert groups([13, 6, 22], 3, turns=20, world=world, seen=40 * 3) == whole[40:]


def test_a_far_away_position_is_found_without_playing_up_to_it() -> None:
    [group] = groups([13, 6, 22], 3, turns=1, seen=3 * 10**12)
    assert len({pick.index for pick in group}) == 3


def test_one_pass_reads_every_sample_once_over_all_ranks() -> None:
    plans = [
        SinglePassBatchSampler(buckets_with([5, 7]), RankShard(rank, 2, 4), first=None) for rank in range(2)
    ]
    pieces = [list(plan.samples(number)) for plan in plans for number in range(len(plan))]
    assert [[pick.index for pick in piece] for piece in pieces] == [
        [0, 1, 2, 3],
        [4],
        [5],
        [6, 7, 8, 9],
        [10, 11],
    ]
    assert all(len({pick.target for pick in piece}) == 1 for piece in pieces)
    rest = SinglePassBatchSampler(buckets_with([5, 7]), RankShard(1, 2, 4), first=8)
    assert [pick.position for number in range(len(rest)) for pick in rest.samples(number)] == [8, 9, 10, 11]
    assert len(SinglePassBatchSampler(buckets_with([5, 7]), RankShard(1, 2, 4), first=12)) == 0
