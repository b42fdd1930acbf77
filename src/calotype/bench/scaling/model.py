"""Models one training step: compute, fixed costs, gradient exchange, waiting for the slowest GPU.

    step = micro-batches × (a + c × samples) + fixed + max(0, exchange − overlap × backward) + spread × E[max]

The backward pass of the last micro-batch hides the exchange as far as they overlap. The step time of each GPU
varies, and all wait for the slowest one: E[max] is the expected maximum of as many draws.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil, sqrt

from calotype.bench.scaling.allreduce_model import Links, expected_maximum, ring_s

BACKWARD = 2 / 3
"""Share of a micro-batch's time: the backward pass does twice the work of the forward pass."""


@dataclass(frozen=True)
class Load:
    """The samples of one step and the GPUs it runs on."""

    nodes: int
    gpus_per_node: int
    samples_per_gpu: int
    micro_batch: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def samples(self) -> int:
        return self.samples_per_gpu * self.gpus

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches; the last one may be smaller."""
        return ceil(self.samples_per_gpu / self.micro_batch)

    @property
    def last_micro_batch(self) -> int:
        return self.samples_per_gpu - (self.micro_batches - 1) * self.micro_batch

    def over(self, nodes: int, gpus_per_node: int) -> Load:
        """Return the same load per GPU on other GPUs: weak scaling."""
        return replace(self, nodes=nodes, gpus_per_node=gpus_per_node)

    def shared_by(self, nodes: int, gpus_per_node: int) -> Load:
        """Divide the samples over other GPUs, dropping the remainder: strong scaling."""
        each = max(1, self.samples // (nodes * gpus_per_node))
        return Load(nodes, gpus_per_node, each, self.micro_batch)


@dataclass(frozen=True)
class StepModel:
    """The parameters, all in seconds except the overlap."""

    per_micro_batch_s: float = 0.0
    """Cost independent of its size: kernel launches, layers that do not fill the device."""
    per_sample_s: float = 0.0
    fixed_s: float = 0.0
    """Cost per step: optimizer, EMA, host."""
    inside_s: float = 0.0
    between_s: float = 0.0
    inside_latency_s: float = 0.0
    between_latency_s: float = 0.0
    spread_s: float = 0.0
    """Standard deviation of one GPU's micro-batch."""
    overlap: float = 1.0
    """Share of the last backward pass that overlaps with the gradient exchange."""

    def parts(self, load: Load) -> dict[str, float]:
        """Break a step down into seconds by cause."""
        compute = load.micro_batches * self.per_micro_batch_s + load.samples_per_gpu * self.per_sample_s
        last = self.per_micro_batch_s + load.last_micro_batch * self.per_sample_s
        links = Links(self.inside_s, self.between_s, self.inside_latency_s, self.between_latency_s)
        exchange = links.all_reduce_s(load.nodes, load.gpus_per_node)
        return {
            "compute": compute,
            "fixed": self.fixed_s,
            "exchange": max(0.0, exchange - self.overlap * BACKWARD * last),
            "stragglers": self.spread_s * sqrt(load.micro_batches) * expected_maximum(load.gpus),
        }

    def step_s(self, load: Load) -> float:
        return sum(self.parts(load).values())

    def slopes(self, load: Load) -> dict[str, float]:
        """Return the derivative of the step time by each parameter except the overlap.

        The time is linear in the parameters both where the exchange is hidden and where it is exposed.
        """
        exposed = self.parts(load)["exchange"] > 0
        hidden = self.overlap * BACKWARD if exposed else 0.0
        nodes, gpus = load.nodes, load.gpus_per_node
        return {
            "per_micro_batch_s": load.micro_batches - hidden,
            "per_sample_s": load.samples_per_gpu - hidden * load.last_micro_batch,
            "fixed_s": 1.0,
            "inside_s": exposed * ring_s(gpus, 1.0, 0.0),
            "between_s": exposed * ring_s(nodes, 1.0, 0.0),
            "inside_latency_s": exposed * ring_s(gpus, 0.0, 1.0),
            "between_latency_s": exposed * ring_s(nodes, 0.0, 1.0),
            "spread_s": sqrt(load.micro_batches) * expected_maximum(load.gpus),
        }

    def samples_per_s(self, load: Load) -> float:
        return load.samples / self.step_s(load)

    def efficiency(self, load: Load, base: Load) -> float:
        """Return the samples per second per GPU, divided by the base's."""
        return self.samples_per_s(load) / load.gpus / (self.samples_per_s(base) / base.gpus)

    def as_dict(self) -> dict[str, float]:
        return asdict(self)
