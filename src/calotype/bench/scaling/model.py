"""A model of one training step: compute, fixed costs, gradients on their way, waiting for the slowest.

    step = micro-batches × (a + c × samples) + fixed + max(0, exchange − overlap × backward) + spread × E[max]

The last micro-batch's backward pass hides the exchange as far as it overlaps. Every GPU's step varies; all
wait for the slowest of them, the expected maximum of as many draws. Knows not how parameters are found.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil, sqrt

from calotype.bench.scaling.allreduce_model import Links, expected_maximum, ring_s

BACKWARD = 2 / 3
"""Of a micro-batch's time: a backward pass does the work of the forward pass twice."""


@dataclass(frozen=True)
class Load:
    """What one step has to do, and on what."""

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
        """The last of them may be smaller."""
        return ceil(self.samples_per_gpu / self.micro_batch)

    @property
    def last_micro_batch(self) -> int:
        return self.samples_per_gpu - (self.micro_batches - 1) * self.micro_batch

    def over(self, nodes: int, gpus_per_node: int) -> Load:
        """The same for each GPU on more of them: weak scaling."""
        return replace(self, nodes=nodes, gpus_per_node=gpus_per_node)

    def shared_by(self, nodes: int, gpus_per_node: int) -> Load:
        """The same samples on more GPUs, what cannot be shared left out: strong scaling."""
        each = max(1, self.samples // (nodes * gpus_per_node))
        return Load(nodes, gpus_per_node, each, self.micro_batch)


@dataclass(frozen=True)
class StepModel:
    """The parameters, all in seconds but the overlap."""

    per_micro_batch_s: float = 0.0
    """Whatever its size: launching, layers that do not fill the device."""
    per_sample_s: float = 0.0
    fixed_s: float = 0.0
    """Once a step: optimizer, averages, the host."""
    inside_s: float = 0.0
    between_s: float = 0.0
    inside_latency_s: float = 0.0
    between_latency_s: float = 0.0
    spread_s: float = 0.0
    """Standard deviation of one GPU's micro-batch."""
    overlap: float = 1.0
    """Share of the last backward pass during which gradients travel."""

    def parts(self, load: Load) -> dict[str, float]:
        """Seconds of a step by what they go to."""
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
        """How a step's time grows with each parameter but the overlap: on either side of what hides the
        exchange it is a straight line through zero."""
        shown = self.parts(load)["exchange"] > 0
        hidden = self.overlap * BACKWARD if shown else 0.0
        nodes, gpus = load.nodes, load.gpus_per_node
        return {
            "per_micro_batch_s": load.micro_batches - hidden,
            "per_sample_s": load.samples_per_gpu - hidden * load.last_micro_batch,
            "fixed_s": 1.0,
            "inside_s": shown * ring_s(gpus, 1.0, 0.0),
            "between_s": shown * ring_s(nodes, 1.0, 0.0),
            "inside_latency_s": shown * ring_s(gpus, 0.0, 1.0),
            "between_latency_s": shown * ring_s(nodes, 0.0, 1.0),
            "spread_s": sqrt(load.micro_batches) * expected_maximum(load.gpus),
        }

    def samples_per_s(self, load: Load) -> float:
        return load.samples / self.step_s(load)

    def efficiency(self, load: Load, base: Load) -> float:
        """Samples a second and GPU, over the base's."""
        return self.samples_per_s(load) / load.gpus / (self.samples_per_s(base) / base.gpus)

    def as_dict(self) -> dict[str, float]:
        return asdict(self)
