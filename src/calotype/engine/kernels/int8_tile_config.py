"""How products in eight bits are cut into tiles by the kernel whose programs walk over many of them.

One plan; `tests/gpu/int8_products.py` measures others beside it. Knows nothing of the kernel.
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
    """Bytes of a row that are fetched and multiplied at a time."""
    stages: int
    """Pieces of that depth in shared memory."""
    parts: int = 2
    """A tile is scaled and written in so many, from left to right: what they wait in is that much smaller."""
    warps: int = 8
    """That multiply, in all."""
    teams: int = 2
    """Of these warps, each with a tile of its own, while another warp fetches."""


SQUARE = Plan(128, 128, 128, stages=6)
"""While one team scales and writes, the other multiplies.

Of ten plans the fastest for SDXL's products together, on an H200.
"""


def plan_of(num_rows: int, width: int, device: torch.device) -> Plan | None:
    """None for a program for each tile, which is all there is to do where tiles are few."""
    num_tiles = -(-num_rows // SQUARE.rows) * -(-width // SQUARE.columns)
    return SQUARE if num_tiles > num_multiprocessors(device) else None
