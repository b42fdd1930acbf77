"""How many whole rows one program takes, and in what parts. Knows nothing of what it does with them."""

from __future__ import annotations

from dataclasses import dataclass

import triton

_NUMBERS = 4096


@dataclass(frozen=True)
class Tile:
    """Rows side by side, each in one part or two."""

    rows: int
    columns: int
    rest: int
    """Of a second part; 0 where the first holds all, padded if need be."""

    def settings(self) -> dict[str, int]:
        """What a kernel that works on such tiles is launched with."""
        warps = max(4, min(16, self.columns // 1024))
        return {"ROWS": self.rows, "COLUMNS": self.columns, "REST": self.rest, "num_warps": warps}


def tile_of_rows(width: int) -> Tile:
    """A function of the width alone: the number of rows must not change a row's numbers.

    Widths of Stable Diffusion are five times a power of two. One part, which has to be a power of two, would
    leave three lanes of eight idle; four fifths and one fifth leave none.
    """
    columns = triton.next_power_of_2(width)
    rest = 0
    if columns != width and width - columns // 2 == columns // 8:
        columns, rest = columns // 2, columns // 8
    return Tile(max(1, _NUMBERS // columns), columns, rest)
