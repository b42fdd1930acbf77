"""Coordination of ranks for saving and resuming: a barrier, and the minimum of a number over ranks.

It uses a separate CPU process group, because the calls come from the saving thread while the main thread uses
training's group; sharing one group would make both hang. A single rank communicates with nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

# Referenced until the process ends: gloo's threads may need the GIL, which torch holds while it ends them.
_groups: list[dist.ProcessGroup] = []


@dataclass(frozen=True)
class Ranks:
    """This process's rank among those of the run."""

    rank: int = 0
    world_size: int = 1
    group: dist.ProcessGroup | None = None

    def barrier(self) -> None:
        """Wait until all ranks have reached this call."""
        if self.group is not None:
            dist.barrier(self.group)

    def lowest(self, number: int) -> int:
        """The minimum of the numbers of all ranks."""
        if self.group is None:
            return number
        result = torch.tensor(number, dtype=torch.int64)
        dist.all_reduce(result, op=dist.ReduceOp.MIN, group=self.group)
        return int(result.item())


def separate_ranks(patience_s: float = 3600.0) -> Ranks:
    """Put all ranks of the run into a separate group; every rank calls it once, after joining the run.

    A barrier waits for the slowest rank to write its part, but no longer than `patience_s`. A dead rank is
    detected at once, a rank that is cut off only by this timeout.
    """
    if not is_distributed():
        return Ranks()
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=patience_s))
    _groups.append(group)
    return Ranks(dist.get_rank(), dist.get_world_size(), group)


def is_distributed() -> bool:
    """Whether this process has joined a process group."""
    return dist.is_available() and dist.is_initialized()
