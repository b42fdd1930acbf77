"""Attention of places to a prompt by a kernel of our own: what it takes, and how it cuts its work.

Knows nothing of networks, nor of what is to be done with the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from calotype.engine.kernels.attention import DTYPES, readable
from calotype.engine.kernels.choice import runs_triton

CHANNELS = (40, 64, 80, 160)
"""Of a head, in Stable Diffusion's networks."""
MOST_TOKENS = 256
"""Of a prompt: three times the usual 77 and some. A thread has half as many scores in registers."""
_MOST_SHARED_BYTES = 96 * 1024
"""That a program may have on every GPU since Ampere."""
_MOST_NUMBERS = 2**31
"""Of a row: places inside it are counted in 32 bits."""


class Parts(NamedTuple):
    """Columns of tiles, which are powers of two: 80 are 64 and 16, not 128 of which a third is empty."""

    first: int
    more: int
    """0 where the first holds all."""


def parts_of(size: int) -> Parts:
    """The fewest columns that hold so many, in at most two parts; the tensor cores take 16 at least."""
    whole = max(16, 1 << (size - 1).bit_length())
    first = whole // 2
    more = max(16, 1 << max(0, size - first - 1).bit_length())
    return Parts(first, more) if more < first else Parts(whole, 0)


@dataclass(frozen=True)
class Plan:
    """How the kernel cuts its work."""

    queries: int = 64
    """Of a program at a time."""
    warps: int = 4
    """Four of them multiply 64 queries at a time on Hopper."""
    stages: int = 3
    """Tiles of queries in shared memory, all but one of them on their way; 1 fetches nothing ahead."""
    walk: int = 4
    """Tiles of queries that a program takes one after the other, for keys and values read once; at most."""

    def shared_bytes(self, channels: int, tokens: int) -> int:
        """At most: keys, values and queries, and what goes out where queries do not make room for it."""
        tiles = self.stages + (self.stages > 1)
        return 2 * sum(parts_of(channels)) * (2 * sum(parts_of(tokens)) + tiles * self.queries)


PLANS = (Plan(), Plan(stages=1))
"""The first that finds room is used. Read from compiled code, not measured yet."""


def plan_of(channels: int, tokens: int) -> Plan | None:
    """A function of these alone: the number of rows must not change a row's numbers."""
    if channels not in CHANNELS or tokens > MOST_TOKENS:
        return None
    room = (plan for plan in PLANS if plan.shared_bytes(channels, tokens) <= _MOST_SHARED_BYTES)
    return next(room, None)


def suits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel takes them; all are (rows, heads, places or tokens, channels)."""
    all_three = (query, key, value)
    if not all(runs_triton(x) and x.dtype in DTYPES for x in all_three):
        return False
    if not query.dtype == key.dtype == value.dtype or not query.device == key.device == value.device:
        return False
    rows, heads, places, channels = query.shape
    tokens = key.shape[2]
    if not key.shape == value.shape == (rows, heads, tokens, channels) or plan_of(channels, tokens) is None:
        return False
    return places * query.stride(2) < _MOST_NUMBERS and _lie_as_usual(query, key, value)


def _lie_as_usual(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Keys and values are parts of one product, with heads inside tokens; queries may lie either way."""
    together = key.stride() == value.stride() and key.stride(1) == key.shape[-1]
    return together and all(map(readable, (query, key, value)))


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Of what suits; scores are divided by the root of the channels, as usual.

    The result is (rows, heads, places, channels) and lies as (rows, places, heads, channels): what the next
    product reads is a view of it.
    """
    from calotype.engine.kernels import prompt_attention_triton  # noqa: PLC0415 - needs Triton

    plan = plan_of(query.shape[-1], key.shape[2])
    assert plan is not None, (query.shape, key.shape)
    return prompt_attention_triton.launch(query, key, value, plan)
