"""Limits how many requests each client has open, so that no client excludes all others.

A client is a key or, where the server has no keys, an address.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from calotype.serve.auth import LOCAL, Client
from calotype.serve.service import UnavailableError
from calotype.serve.settings import as_address

_IPV6_NETWORK_BITS = 64
"""A customer of a provider usually gets such a network and may use any address in it."""


class ClientShares:
    """A fixed number of slots, of which a client may hold as many as are free.

    So one client gets half of them, a second one half of the rest, and a further client still finds one.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """Hold one slot for the block; raises UnavailableError if the client has none left."""
        free = self.most - self._total
        if self._held[client] >= free:
            raise UnavailableError(
                f"{client} has {self._held[client]} requests open and {free} of {self.most} slots are free; "
                "a client may have no more requests open than slots are free; wait until some end, or raise "
                "`reached.most_connections`"
            )
        self._held[client] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]


def share_of(caller: Client, host: str) -> str:
    """The share that a request counts against: its key's, or its address's where there are no keys."""
    return address_group(host) if caller.name == LOCAL else repr(caller.name)


def address_group(host: str) -> str:
    """The addresses that count as one client: a single address, or an IPv6 network."""
    address = as_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return str(ipaddress.ip_network((int(address), _IPV6_NETWORK_BITS), strict=False))
    return host
