"""Chooses entries to remove where a limit is exceeded: those of clients with more than an equal share.

Entries are removed one at a time, each the oldest of the client that holds most at that moment. So a client
that holds no more than `limit / clients` loses nothing, and the others may use the space it leaves free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """An entry that can be removed."""

    age: float
    """Smaller is older."""
    size: int
    key: Any
    """Identifies it for the caller."""


def choose_removals(
    limit: int, held: Mapping[str, int], oldest_first: Callable[[str], Iterator[Entry]], most: int
) -> list[Entry]:
    """At most `most` entries to remove so that what all clients hold comes down to `limit`.

    `held` is the size of all that each client holds, including what cannot be removed now; `oldest_first`
    gives those of a client's entries that can. Clients that hold the same take turns, the oldest entry first.
    """
    total = sum(held.values())
    if total <= limit:
        return []
    clients = sum(size > 0 for size in held.values())
    # By size, then by the age of the next entry; names are unique, so later fields are never compared.
    queue: list[tuple[int, float, str, Entry, Iterator[Entry]]] = []

    def offer(client: str, size: int, entries: Iterator[Entry]) -> None:
        if size * clients <= limit:
            return
        # Removing an entry of size 0 frees nothing.
        entry = next((entry for entry in entries if entry.size > 0), None)
        if entry is not None:
            heapq.heappush(queue, (-size, entry.age, client, entry, entries))

    for client, size in held.items():
        offer(client, size, oldest_first(client))
    removed: list[Entry] = []
    while queue and total > limit and len(removed) < most:
        negative_size, _, client, entry, entries = heapq.heappop(queue)
        removed.append(entry)
        total -= entry.size
        offer(client, -negative_size - entry.size, entries)
    return removed
