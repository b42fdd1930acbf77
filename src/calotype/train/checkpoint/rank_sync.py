"""What ranks do together to save and to resume: wait for each other, and find the lowest of their numbers.

In a process group of its own, over the CPU, because these calls come from the thread that saves while
training's own group is busy in another; mixing the two would hang both. Alone, nobody is asked. Knows nothing
of checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

# Kept until the process ends: gloo's threads may still need Python's lock, which torch holds to end them.
_made: list[dist.ProcessGroup] = []


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int = 0
    world_size: int = 1
    group: dist.ProcessGroup | None = None

    def barrier(self) -> None:
        """Returns when all ranks have come here."""
        if self.group is not None:
            dist.barrier(self.group)

    def lowest(self, number: int) -> int:
        """The lowest of what all ranks give."""
        if self.group is None:
            return number
        asked = torch.tensor(number, dtype=torch.int64)
        dist.all_reduce(asked, op=dist.ReduceOp.MIN, group=self.group)
        return int(asked.item())


def separate_ranks(patience_s: float = 3600.0) -> Ranks:
    """All ranks of the run in a group of their own; every rank calls it once, after joining the run.

    A barrier waits for the slowest rank to write its part, but no longer than `patience_s`. A rank that died
    is noticed at once, one that is cut off only by that.
    """
    if not is_distributed():
        return Ranks()
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=patience_s))
    _made.append(group)
    return Ranks(dist.get_rank(), dist.get_world_size(), group)


def is_distributed() -> bool:
    """Whether this process has joined others."""
    return dist.is_available() and dist.is_initialized()
