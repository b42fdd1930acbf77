"""How the persistent int8 product kernel, whose programs process many tiles, chooses its tiles.

One plan; `tests/gpu/int8_products.py` measures others beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from calotype.engine.kernels.dispatch import num_multiprocessors


@dataclass(frozen=True)
class Plan:
    rows: int
    columns: int
    depth: int
    """Depth in bytes that is fetched and multiplied at a time."""
    stages: int
    """Buffers of that depth in shared memory."""
    parts: int = 2
    """Column parts in which a tile is scaled and written: they make the output buffer smaller."""
    warps: int = 8
    """Total number of multiplying warps."""
    teams: int = 2
    """Groups of these warps, each with its own tile, while another warp fetches."""


SQUARE = Plan(128, 128, 128, stages=6)
"""While one team scales and writes, the other multiplies.

The fastest of ten plans for all of SDXL's products on an H200.
"""


def plan_of(num_rows: int, width: int, device: torch.device) -> Plan | None:
    """None for one program per tile, which suffices if there are few tiles."""
    num_tiles = -(-num_rows // SQUARE.rows) * -(-width // SQUARE.columns)
    return SQUARE if num_tiles > num_multiprocessors(device) else None
