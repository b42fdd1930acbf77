"""Rendezvous of the ranks of a run, also after torchrun has restarted them.

torchrun keeps one store of addresses through all restarts, and a restarted process may read the address of a
process that was killed. So the ranks agree on a fresh key prefix and store their addresses under it.
"""

from __future__ import annotations

import time
from uuid import uuid4

from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]  # unlisted
from torch.distributed.rendezvous import rendezvous

_PAUSE_S = 0.02
# torch's timeout for a collective; torchrun ends all processes at once when one of them fails.
_TIMEOUT_S = 1800.0


def rendezvous_store(rank: int, world_size: int) -> Store:
    """A store that only the processes of this start share; every rank calls it once."""
    if world_size == 1:
        # A single rank needs no address, and torchrun need not have given it one.
        return HashStore()
    store, _, _ = next(rendezvous("env://", rank, world_size))
    return PrefixStore(_agree_on_prefix(store, rank, world_size), store)


def _agree_on_prefix(store: Store, rank: int, world_size: int) -> str:
    """The first rank's prefix; others request it under names that no earlier start can have answered."""
    if rank == 0:
        return _answer_all(store, world_size)
    name = uuid4().hex
    store.set(f"calotype/asks/{rank}", name)
    prefix = store.get(f"calotype/told/{name}").decode()
    store.set(f"calotype/heard/{prefix}/{rank}", "")
    return prefix


def _answer_all(store: Store, world_size: int) -> str:
    prefix, unconfirmed = uuid4().hex, set(range(1, world_size))
    deadline = time.monotonic() + _TIMEOUT_S
    while unconfirmed:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"ranks {sorted(unconfirmed)} of {world_size} did not come; see their messages"
            )
        for rank in sorted(unconfirmed):
            if store.check([f"calotype/heard/{prefix}/{rank}"]):
                unconfirmed.discard(rank)
            elif store.check([f"calotype/asks/{rank}"]):
                # The request may come from a killed process: then nothing confirms, and it is answered again.
                store.set(f"calotype/told/{store.get(f'calotype/asks/{rank}').decode()}", prefix)
        time.sleep(_PAUSE_S)
    return prefix
