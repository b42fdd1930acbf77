"""Stateless pseudo-random numbers and shuffles: pure functions of their arguments.

The arithmetic is written out because libraries change their generators between releases, and a run that is
resumed after an upgrade must keep its order.
"""

from collections.abc import Sequence
from math import isqrt

_MASK = 2**64 - 1
_NUM_ROUNDS = 6


def mixed(*numbers: int) -> int:
    """64 bits hashed from `numbers` in order. The finalizer is SplitMix64's (Steele et al. 2014)."""
    state = 0
    for number in numbers:
        state = _scramble(state ^ (number & _MASK))
    return state


def round_keys(*numbers: int) -> tuple[int, ...]:
    """The keys of one shuffle; worth caching, since they serve every position."""
    return tuple(mixed(*numbers, round_index) for round_index in range(_NUM_ROUNDS))


def shuffled(position: int, length: int, keys: Sequence[int]) -> int:
    """The image of `position` under a shuffle of `range(length)`, computed without a table.

    It is a Feistel network over the cells of a nearly square grid (Black and Rogaway 2002): each round shifts
    every row, or every column, by an amount that depends only on its number, so no two cells collide. The
    grid has a few cells too many; a position that lands on one of them is permuted again until it is inside.
    """
    num_rows = isqrt(length - 1) + 1
    num_columns = -(-length // num_rows)
    cell = position
    while True:
        row, column = divmod(cell, num_columns)
        for round_index, key in enumerate(keys):
            if round_index % 2:
                row = (row + _scramble(key ^ column)) % num_rows
            else:
                column = (column + _scramble(key ^ row)) % num_columns
        cell = row * num_columns + column
        if cell < length:
            return cell


def _scramble(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
