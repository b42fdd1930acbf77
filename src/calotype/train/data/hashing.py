"""Numbers that look random and depend on nothing but what they are made from. Holds no state.

The arithmetic is spelled out instead of taken from a library's generator: libraries change their generators
between releases, and a run that is resumed after an upgrade must still see the order it began with.
"""

from collections.abc import Sequence
from math import isqrt

_MASK = 2**64 - 1
_NUM_ROUNDS = 6


def mixed(*numbers: int) -> int:
    """64 bits made of `numbers`, whose order counts. The finaliser is SplitMix64's (Steele et al. 2014)."""
    state = 0
    for number in numbers:
        state = _scrambled(state ^ (number & _MASK))
    return state


def round_keys(*numbers: int) -> tuple[int, ...]:
    """What `shuffled` needs to know of one shuffle; worth keeping, since it serves every position."""
    return tuple(mixed(*numbers, turn) for turn in range(_NUM_ROUNDS))


def shuffled(position: int, length: int, keys: Sequence[int]) -> int:
    """Where `position` goes in a shuffle of `range(length)`; no table is made, whatever the length.

    A Feistel network over the cells of a nearly square grid (Black and Rogaway 2002): each round shifts
    every row, or every column, by an amount only its own number decides, so no two cells ever meet. The grid
    has a few cells too many; who lands on one of those walks on until it is back inside.
    """
    num_rows = isqrt(length - 1) + 1
    num_columns = -(-length // num_rows)
    cell = position
    while True:
        row, column = divmod(cell, num_columns)
        for turn, key in enumerate(keys):
            if turn % 2:
                row = (row + _scrambled(key ^ column)) % num_rows
            else:
                column = (column + _scrambled(key ^ row)) % num_columns
        cell = row * num_columns + column
        if cell < length:
            return cell


def _scrambled(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
