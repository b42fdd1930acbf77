"""Record of a scaling study: measured points, the fitted performance model, and its predictions.

Nothing in `predictions` was measured.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

FORMAT: Literal["calotype.scaling.1"] = "calotype.scaling.1"
FILE = "scaling.json"
"""File name, next to the records of a run."""
Mode = Literal["weak", "strong"]
"""`weak`: constant work per GPU; `strong`: constant total work."""

Source = Literal["fitted", "given", "measured", "none"]
"""Source of a parameter; `none`: it is 0, as no point determines it."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Parameter(_Frozen):
    """A parameter of the performance model of a step."""

    name: str
    value: float
    """In seconds; the overlap is a share."""
    source: Source
    uncertainty: float | None = None
    """Standard deviation of a fitted one; None if the points do not determine it."""


class FittedPoint(_Frozen):
    """A measured step compared with the model."""

    name: str
    nodes: int
    gpus_per_node: int
    samples_per_gpu: int
    micro_batch: int
    samples_per_s: float
    by_model: float
    """Samples a second, by the fitted model."""
    uncertainty: float | None = None
    """Of `by_model`, one standard deviation as a share of it, from the uncertainty of the fit."""
    fitted: bool = True
    """Whether it was used in the fit; the others are predictions."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def error(self) -> float:
        """Relative error of the predicted throughput."""
        return self.by_model / self.samples_per_s - 1


class FitRecord(_Frozen):
    """One fit: its parameters, its error, and all compared points."""

    about: str
    parameters: list[Parameter]
    error: float
    """Root mean squared relative error of the fitted steps."""
    vague: list[str] = []
    """Parameters whose uncertainty is as large as their value."""
    points: list[FittedPoint]


class MeasuredScaling(_Frozen):
    """A measured point and its scaling efficiency."""

    mode: Mode
    nodes: int
    gpus_per_node: int
    samples_per_gpu: int
    samples_per_s: float
    efficiency: float
    """Samples per second and GPU, relative to those of the fewest GPUs."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class Prediction(_Frozen):
    """The prediction for an unmeasured number of GPUs."""

    mode: Mode
    nodes: int
    gpus_per_node: int
    samples_per_gpu: int
    samples_per_s: float
    uncertainty: float | None = None
    """Of `samples_per_s`, one standard deviation as a share of it, from the uncertainty of the fit."""
    efficiency: float
    parts: dict[str, float]
    """Seconds of a step by component."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


class Link(_Frozen):
    """Link parameters measured with an all-reduce over a ring of `members`."""

    members: int
    latency_s: float
    """Latency of one turn around the ring."""
    gb_s: float
    """Bandwidth: per GPU inside a node, per node between nodes."""


class LinksRecord(_Frozen):
    """Measured links of a cluster."""

    format: Literal["calotype.links.1"] = "calotype.links.1"
    nodes: int
    gpus_per_node: int
    num_bytes: int
    inside: Link | None = None
    between: Link | None = None


class ScalingRecord(_Frozen):
    format: Literal["calotype.scaling.1"] = FORMAT
    title: str
    """Trained model and hardware."""
    command: str
    created: AwareDatetime
    device: str | None = None
    """Device of the measured points; None if there are none."""
    measured: list[MeasuredScaling] = []
    fit: FitRecord | None = None
    """Fit of the measured points; None if there are too few."""
    predictions: list[Prediction] = []
    published: list[FitRecord] = []
    """The same model fitted on published points: on few of their nodes, on more, and on all."""
    notes: list[str] = []
