"""Pseudo-random choices that depend only on the hashed words."""

import hashlib
from collections.abc import Iterable


def stable_hash(*words: str) -> int:
    """Hash `words` to 64 bits."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:8], "big")


def shuffle(things: Iterable[str], *words: str) -> list[str]:
    """Shuffle things by `words`; adding things does not change the order of the others."""
    return sorted(things, key=lambda thing: (stable_hash(*words, thing), thing))
