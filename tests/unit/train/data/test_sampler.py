"""The order of samples: complete, shuffled by seed, the same wherever it is picked up."""

from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.core.errors import RequestError
from calotype.train.data.hashing import mixed
from calotype.train.data.sampler import EpochSampler, RankShard

# Made on the day the order was decided, from Order(10, 3) and mixed(1, 2, 3); they must never be made again.
GOLDEN_FIRST_EPOCH = [8, 6, 1, 0, 5, 2, 4, 9, 7, 3]
GOLDEN_SECOND_EPOCH = [2, 4, 3, 9, 6, 1, 0, 5, 8, 7]
GOLDEN_MIX = 15020427595393229491


def global_positions(world_size: int, micro: int, seen: int, rounds: int) -> list[int]:
    """What all ranks read together, rank after rank within each round."""
    shares = [RankShard(rank, world_size, micro, seen) for rank in range(world_size)]
    starts = [share.start(number) for number in range(rounds) for share in shares]
    return [position for start in starts for position in range(start, start + micro)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**63), st.integers(0, 10**6))
def test_every_epoch_holds_every_sample_once(num_samples: int, seed: int, epoch: int) -> None:
    order = EpochSampler(num_samples, seed)
    start = epoch * num_samples
    found = [order.index(position) for position in range(start, start + num_samples)]
    assert sorted(found) == list(range(num_samples))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 200), st.integers(1, 6))
def test_ranks_divide_the_sequence_without_gap_or_overlap(
    world: int, micro: int, seen: int, rounds: int
) -> None:
    assert global_positions(world, micro, seen, rounds) == list(range(seen, seen + world * micro * rounds))


def test_another_number_of_ranks_goes_on_with_the_same_sequence() -> None:
    before = global_positions(4, 3, 0, rounds=2)
    after = global_positions(2, 3, len(before), rounds=5)
    assert before + after == list(range(len(before) + len(after)))


def test_seeds_and_epochs_give_different_orders() -> None:
    first = [EpochSampler(100, 1).index(position) for position in range(100)]
    assert first != [EpochSampler(100, 2).index(position) for position in range(100)]
    assert first != [EpochSampler(100, 1).index(position) for position in range(100, 200)]
    assert first == [EpochSampler(100, 1).index(position) for position in range(100)]


def test_without_shuffle_the_order_is_the_source_s() -> None:
    order = EpochSampler(3, 5, shuffle=False)
    assert [order.index(position) for position in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_order_never_changes_between_releases() -> None:
    """A run that is resumed after an upgrade must see the order it began with."""
    assert [EpochSampler(10, 3).index(position) for position in range(20)] == [
        *GOLDEN_FIRST_EPOCH,
        *GOLDEN_SECOND_EPOCH,
    ]
    assert mixed(1, 2, 3) == GOLDEN_MIX


def test_a_shuffle_is_not_biased() -> None:
    """Where one sample lands is even over places, and neighbours do not stay together."""
    landed = Counter(EpochSampler(16, seed).index(0) for seed in range(4000))
    # 250 expected in each place; five standard deviations.
    assert all(abs(landed[place] - 250) < 77 for place in range(16))
    orders = [[EpochSampler(500, seed).index(p) for p in range(500)] for seed in range(200)]
    kept_together = sum(b == a + 1 for order in orders for a, b in pairwise(order))
    # One a shuffle is expected, with a standard deviation of one.
    assert abs(kept_together / 200 - 1) < 0.35


def test_small_sets_are_shuffled_in_every_way() -> None:
    for length in (2, 3, 4):
        seen = {tuple(EpochSampler(length, seed).index(p) for p in range(length)) for seed in range(1500)}
        assert seen == set(permutations(range(length)))


def test_a_place_that_cannot_be_lists_every_problem() -> None:
    with pytest.raises(RequestError) as refused:
        RankShard(rank=3, world_size=2, micro_batch_size=0, samples_seen=-4)
    assert {problem.field for problem in refused.value.problems} == {
        "rank",
        "micro_batch_size",
        "samples_seen",
    }
    assert "0..1" in str(refused.value)
