"""How many whole rows one program takes. Knows nothing of what it does with them."""

from __future__ import annotations

from dataclasses import dataclass

import triton

_NUMBERS = 4096


@dataclass(frozen=True)
class Tile:
    """Rows side by side, each padded to `columns`."""

    rows: int
    columns: int

    def settings(self) -> dict[str, int]:
        """What a kernel that works on such tiles is launched with."""
        warps = max(4, min(16, self.columns // 1024))
        return {"ROWS": self.rows, "COLUMNS": self.columns, "num_warps": warps}


def tile_of_rows(width: int) -> Tile:
    """A function of the width alone: the number of rows must not change a row's numbers."""
    columns = triton.next_power_of_2(width)
    return Tile(max(1, _NUMBERS // columns), columns)
