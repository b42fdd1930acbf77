"""Chooses how many whole rows one program processes, and in which parts."""

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
    """Columns of a second part; 0 if the first holds all, padded if necessary."""

    def settings(self) -> dict[str, int]:
        """Launch settings of a kernel on such tiles."""
        warps = max(4, min(16, self.columns // 1024))
        return {"ROWS": self.rows, "COLUMNS": self.columns, "REST": self.rest, "num_warps": warps}


def tile_of_rows(width: int) -> Tile:
    """Depends only on the width: the number of rows must not change a row's results.

    Widths of Stable Diffusion are five times a power of two. One part, which has to be a power of two, would
    leave three lanes of eight idle; four fifths and one fifth leave none.
    """
    columns = triton.next_power_of_2(width)
    rest = 0
    if columns != width and width - columns // 2 == columns // 8:
        columns, rest = columns // 2, columns // 8
    return Tile(max(1, _NUMBERS // columns), columns, rest)
