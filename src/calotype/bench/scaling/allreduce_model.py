"""Models the time of an all-reduce: a ring inside each node, and rings between the nodes.

A ring of n moves 2 (n - 1) / n of the bytes over every link, in 2 (n - 1) steps (Patarasuk and Yuan 2009).
Between nodes each GPU exchanges its share of the gradients with its peers, all at the same time over the
node's links, as NCCL does with one ring per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist


@dataclass(frozen=True)
class Links:
    """The cost of the links."""

    inside_s: float = 0.0
    """Time of all gradients over a link inside a node: bytes / bandwidth."""
    between_s: float = 0.0
    """Time of all gradients over a node's links to other nodes."""
    inside_latency_s: float = 0.0
    """Latency of one ring step."""
    between_latency_s: float = 0.0

    def all_reduce_s(self, nodes: int, gpus_per_node: int) -> float:
        """Return the time until every GPU has the sum."""
        inside = ring_s(gpus_per_node, self.inside_s, self.inside_latency_s)
        return inside + ring_s(nodes, self.between_s, self.between_latency_s)


def ring_s(count: int, once_s: float, latency_s: float) -> float:
    """Return the time of an all-reduce in a ring of `count` members."""
    return 2 * (count - 1) / count * once_s + 2 * (count - 1) * latency_s


_REACH, _PARTS = 9.0, 720


@lru_cache(maxsize=4096)
def expected_maximum(count: int) -> float:
    """Return the expected maximum of `count` independent standard normal draws, in standard deviations.

    It is the integral of x over the maximum's density, by parts: the integral of 1 - F(x)^n above zero minus
    that of F(x)^n below it. Simpson's rule is exact to eight digits here.
    """
    if count < 1:
        raise ValueError(f"{count} draws have no maximum")
    below = NormalDist().cdf
    step = _REACH / _PARTS
    total = 0.0
    for number in range(_PARTS + 1):
        weight = 1 if number in (0, _PARTS) else 4 if number % 2 else 2
        at = number * step
        total += weight * (1 - below(at) ** count - below(-at) ** count)
    return total * step / 3
