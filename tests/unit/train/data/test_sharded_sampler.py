"""The order of samples far away: a function of the position alone, whole, mixed, local to a few shards."""

from bisect import bisect_right
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.train.data.sampler import RankShard
from calotype.train.data.sharded_sampler import Mixing, ShardedSampler

SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 5), st.booleans(), st.integers(0, 3))
def test_every_sample_comes_once_an_epoch(sizes: list[int], window: int, shuffle: bool, epoch: int) -> None:
    order, total = ShardedSampler(sizes, Mixing(7, shuffle, window)), sum(sizes)
    found = [order.index(position) for position in range(epoch * total, (epoch + 1) * total)]
    assert sorted(found) == list(range(total))
    if not shuffle:
        assert found == list(range(total))


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 4), st.integers(1, 6), st.integers(1, 4))
def test_lanes_share_all_samples_evenly(sizes: list[int], window: int, lanes: int, granule: int) -> None:
    order, total = ShardedSampler(sizes, Mixing(3, True, window, lanes, granule)), sum(sizes)
    count = min(lanes, total)
    seen: list[set[int]] = []
    for lane in range(count):
        length = total * (lane + 1) // count - total * lane // count
        positions = [
            (turn * count + lane) * granule + within for turn in range(length) for within in range(granule)
        ]
        one_epoch = [order.index(position) for position in positions[:length]]
        assert len(set(one_epoch)) == length
        seen.append(set(one_epoch))
    assert sorted(sample for one in seen for sample in one) == list(range(total))


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(1, 3), st.sampled_from([1, 2, 4]), st.integers(0, 3))
def test_ranks_together_read_what_one_reads_alone(
    sizes: list[int], lanes: int, world_size: int, begun: int
) -> None:
    mixing = Mixing(5, True, 2, lanes, granule=3)
    rounds, seen = 8, begun * 12
    alone = [ShardedSampler(sizes, mixing).index(seen + p) for p in range(rounds * world_size * 3)]
    together = []
    orders = [ShardedSampler(sizes, mixing) for _ in range(world_size)]
    for number in range(rounds):
        for rank, order in enumerate(orders):
            start = RankShard(rank, world_size, 3, seen).start(number)
            together += [order.index(start + within) for within in range(3)]
    assert together == alone


def test_few_shards_are_wanted_at_a_time_and_they_are_mixed() -> None:
    sizes = [50] * 40
    ends = list(accumulate(sizes))
    order = ShardedSampler(sizes, Mixing(1, True, window=4))
    shards = [bisect_right(ends, order.index(position)) for position in range(sum(sizes))]
    for start in range(0, len(shards), 200):
        assert len(set(shards[start : start + 200])) == 4
    assert len(set(shards[:20])) > 1
    again = [bisect_right(ends, order.index(2000 + position)) for position in range(200)]
    assert set(again) != set(shards[:200])


def test_a_rank_keeps_to_the_shards_of_its_lanes() -> None:
    sizes = [10] * 12
    ends = list(accumulate(sizes))
    order = ShardedSampler(sizes, Mixing(1, True, window=2, lanes=4, granule=5))
    wanted = []
    for rank in range(2):
        share = RankShard(rank, 2, 5)
        positions = [share.start(number) + within for number in range(60) for within in range(5)]
        wanted.append({bisect_right(ends, order.index(position)) for position in positions})
    assert wanted[0] | wanted[1] == set(range(12))
    assert not wanted[0] & wanted[1]
