"""Where the processes of a run find each other, even when torchrun has started them before.

torchrun keeps one store of addresses through all its restarts, and a process that comes back may read there
where another was before it was killed. So they agree on a word nobody has used yet, and keep their addresses
under it. Knows nothing of what they do together.
"""

from __future__ import annotations

import time
from uuid import uuid4

from torch.distributed import HashStore, PrefixStore, Store  # type: ignore[attr-defined]  # unlisted
from torch.distributed.rendezvous import rendezvous

_PAUSE_S = 0.02
# As torch waits for a collective; torchrun ends all at once when one of them fails.
_TIMEOUT_S = 1800.0


def rendezvous_store(rank: int, world_size: int) -> Store:
    """A store that only the processes of this start share; every one of them calls it once."""
    if world_size == 1:
        # One process meets nobody: it needs no address, and torchrun need not have given it one.
        return HashStore()
    store, _, _ = next(rendezvous("env://", rank, world_size))
    return PrefixStore(_agreed_word(store, rank, world_size), store)


def _agreed_word(store: Store, rank: int, world_size: int) -> str:
    """The first process's word; the others ask for it by names that no earlier start can have answered."""
    if rank == 0:
        return _tell_all(store, world_size)
    name = uuid4().hex
    store.set(f"calotype/asks/{rank}", name)
    word = store.get(f"calotype/told/{name}").decode()
    store.set(f"calotype/heard/{word}/{rank}", "")
    return word


def _tell_all(store: Store, world_size: int) -> str:
    word, unsure = uuid4().hex, set(range(1, world_size))
    latest = time.monotonic() + _TIMEOUT_S
    while unsure:
        if time.monotonic() > latest:
            raise TimeoutError(f"ranks {sorted(unsure)} of {world_size} did not come; see their messages")
        for rank in sorted(unsure):
            if store.check([f"calotype/heard/{word}/{rank}"]):
                unsure.discard(rank)
            elif store.check([f"calotype/asks/{rank}"]):
                # It may be the question of one that was killed: then nobody hears, and it is answered again.
                store.set(f"calotype/told/{store.get(f'calotype/asks/{rank}').decode()}", word)
        time.sleep(_PAUSE_S)
    return word
