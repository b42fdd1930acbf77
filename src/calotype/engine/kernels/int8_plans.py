"""How products in eight bits are cut into tiles by the kernels that walk over many of them, by shape.

One table; `tests/gpu/int8_products.py` measures others beside it. Knows nothing of the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Kernel = Literal["tile", "persistent", "specialised"]
"""A program for each tile; programs that walk over tiles; such with warps that only fetch."""

_MULTIPROCESSORS = 132


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
    programs: int = 1
    """On each multiprocessor."""
    flat: bool = True
    """Whether the loops over tiles and depth become one: the next tile is fetched while one is written."""
    teams: int = 0
    """Of warps that only multiply, each a tile of its own, while another warp fetches; 0: all do both."""


# The largest tiles whose sums fit in registers, as in the kernel of one tile a program: they read least for a
# product. Halves leave room for a fourth stage. Wide tiles where they divide the width, tall ones for 640 and
# 1920, where the half of the last wide tile would be empty. Not measured yet.
_WIDE, _TALL = 0, 1
_PLANS: dict[Kernel, tuple[Plan, Plan]] = {
    "persistent": (Plan(128, 256, 128, 4), Plan(256, 128, 128, 4)),
    "specialised": (Plan(128, 256, 128, 4, teams=1), Plan(256, 128, 128, 4, teams=1)),
}


def plan_of(kernel: Kernel, num_rows: int, width: int, device: torch.device) -> Plan | None:
    """None for a program for each tile, which is all there is to do where tiles are few."""
    if kernel == "tile":
        return None
    plans = _PLANS[kernel]
    plan = plans[_WIDE if width % plans[_WIDE].columns == 0 else _TALL]
    num_tiles = -(-num_rows // plan.rows) * -(-width // plan.columns)
    return plan if num_tiles > num_multiprocessors(device) else None


def num_multiprocessors(device: torch.device) -> int:
    """Of an H200 where there is no GPU: kernels are interpreted and compiled there too."""
    if device.type != "cuda":
        return _MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count
