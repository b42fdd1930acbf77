"""How long gradients travel: a ring inside each node, and one between the nodes. Plain arithmetic.

A ring of n moves 2 (n - 1) / n of the bytes over every link, in 2 (n - 1) turns (Patarasuk and Yuan 2009).
Between nodes each GPU exchanges its share of the gradients with its peers there, all of them at once over the
node's links, as NCCL does with one ring a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Links:
    """What it costs to use the wires."""

    inside_s: float = 0.0
    """All gradients once over a link inside a node: bytes / bandwidth."""
    between_s: float = 0.0
    """All gradients once over a node's links to others."""
    inside_latency_s: float = 0.0
    """Of one turn."""
    between_latency_s: float = 0.0

    def all_reduce_s(self, nodes: int, gpus_per_node: int) -> float:
        """Until every GPU has the sum."""
        inside = ring_s(gpus_per_node, self.inside_s, self.inside_latency_s)
        return inside + ring_s(nodes, self.between_s, self.between_latency_s)


def ring_s(count: int, once_s: float, latency_s: float) -> float:
    """Around a ring of so many."""
    return 2 * (count - 1) / count * once_s + 2 * (count - 1) * latency_s
