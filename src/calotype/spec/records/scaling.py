"""What is remembered of a scaling study: what was fitted to which points, and what follows for more GPUs.

Nothing in `predictions` was measured. Knows nothing of torch, nor of how a fit is made.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

FORMAT: Literal["calotype.scaling.1"] = "calotype.scaling.1"
FILE = "scaling.json"
"""What it is called, beside a run's records."""
Mode = Literal["weak", "strong"]
"""`weak`: every GPU has as much to do as before; `strong`: all together have."""

Source = Literal["fitted", "given", "measured", "none"]
"""Where a parameter comes from; `none`: it is nothing, because no point could tell it."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Parameter(_Frozen):
    """One number of the model of a step."""

    name: str
    value: float
    """In seconds; the overlap is a share."""
    source: Source
    uncertainty: float | None = None
    """Standard deviation of a fitted one; None where the points do not tell it."""


class FittedPoint(_Frozen):
    """A measured step beside the model's."""

    name: str
    nodes: int
    gpus_per_node: int
    samples_per_gpu: int
    micro_batch: int
    samples_per_s: float
    by_model: float
    """Samples a second, by the fitted model."""
    uncertainty: float | None = None
    """Of `by_model`, one standard deviation as a share of it, from what the fit leaves open."""
    fitted: bool = True
    """Whether it was fitted on; the others were predicted."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def error(self) -> float:
        """Of the model's throughput."""
        return self.by_model / self.samples_per_s - 1


class FitRecord(_Frozen):
    """One fit: its numbers, how far off it is, and every point it was held against."""

    about: str
    parameters: list[Parameter]
    error: float
    """Root of the mean squared relative error of the steps it was fitted on."""
    vague: list[str] = []
    """Parameters that the points leave as uncertain as they are large."""
    points: list[FittedPoint]


class MeasuredScaling(_Frozen):
    """A measured point and how well it scales."""

    mode: Mode
    nodes: int
    gpus_per_node: int
    samples_per_gpu: int
    samples_per_s: float
    efficiency: float
    """Samples a second and GPU, over those of the fewest GPUs."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class Prediction(_Frozen):
    """What the model says of GPUs that nobody measured."""

    mode: Mode
    nodes: int
    gpus_per_node: int
    samples_per_gpu: int
    samples_per_s: float
    uncertainty: float | None = None
    """Of `samples_per_s`, one standard deviation as a share of it, from what the fit leaves open."""
    efficiency: float
    parts: dict[str, float]
    """Seconds of a step, by what they go to."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class Link(_Frozen):
    """What an all-reduce over a ring of so many showed of the wires between them."""

    members: int
    latency_s: float
    """Of one turn around the ring."""
    gb_s: float
    """Of a GPU inside a node; of a whole node between nodes."""


class LinksRecord(_Frozen):
    """Measured wires of a cluster."""

    format: Literal["calotype.links.1"] = "calotype.links.1"
    nodes: int
    gpus_per_node: int
    num_bytes: int
    inside: Link | None = None
    between: Link | None = None


class ScalingRecord(_Frozen):
    format: Literal["calotype.scaling.1"] = FORMAT
    title: str
    """What was trained, on what."""
    command: str
    created: AwareDatetime
    device: str | None = None
    """Of the measured points; None where there are none."""
    measured: list[MeasuredScaling] = []
    fit: FitRecord | None = None
    """Of the measured points; None where they are too few."""
    predictions: list[Prediction] = []
    published: list[FitRecord] = []
    """The same model fitted on what others published: on few of their nodes, on more, and on all."""
    notes: list[str] = []
