"""Choices that look random and depend on the words they are made for alone. Holds no state."""

import hashlib
from collections.abc import Iterable


def stable_hash(*words: str) -> int:
    """64 bits made of `words`."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:8], "big")


def shuffle(things: Iterable[str], *words: str) -> list[str]:
    """The things in an order of these words' own, which more things would not change for the rest."""
    return sorted(things, key=lambda thing: (stable_hash(*words, thing), thing))
