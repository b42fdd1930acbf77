"""Benchmark jobs: one point of a sweep with all its settings.

A job holds everything that affects the results of a point, so its id is derived from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calotype.spec.generate_request import GenerateRequest
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import Setting, identity_of

OURS = "calotype"
BASELINES = ("diffusers-eager", "diffusers-compile")
"""The plain diffusers pipeline or training loop, eager and with torch.compile."""
BASELINE_SAMPLER = {"sampler": "euler", "schedule": "normal"}
"""Settings with which the diffusers pipeline uses the same noise levels as ours."""
OURS_ALONE = {
    "inference": ("preset",),
    "train": (
        "model.compile",
        "model.channels_last",
        "model.cuda_graphs",
        "model.attention",
        "model.low_precision_weights",
        "optimizer.fused",
    ),
}
"""Settings, by kind, that baselines do not have: one baseline point is compared with all points of ours that
differ only in them."""
System = Literal["calotype", "diffusers-eager", "diffusers-compile"]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[int, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class InferenceJob(_Frozen):
    """Repeated generation of a batch of images."""

    kind: Literal["inference"] = "inference"
    system: System = "calotype"
    model: str
    preset: str | None
    """None for baselines, which have no presets."""
    precision: str | None = None
    """Default: that of the device."""
    device: str | None = None
    request: GenerateRequest
    """Its `count` is the batch size."""
    units: Count = 5
    """Measured batches."""
    warmup: Amount = 2
    """Warm-up batches."""
    judged: bool = True
    """Whether images that a pass may change are compared with those of the baseline preset."""


class TrainJob(_Frozen):
    """Training steps."""

    kind: Literal["train"] = "train"
    system: System = "calotype"
    recipe: Recipe
    device: str | None = None
    units: Count = 30
    """Measured steps."""
    warmup: Amount = 10
    """Warm-up steps."""


Job = Annotated[InferenceJob | TrainJob, Field(discriminator="kind")]


class Point(_Frozen):
    """One point of a sweep."""

    name: str
    settings: dict[str, Setting]
    """Settings that the sweep varies."""
    job: Job
    command: str
    """Command line that repeats the measurement."""

    @property
    def id(self) -> str:
        return identity_of(self.job.model_dump(mode="json"))


class Ticket(_Frozen):
    """Input of the process that measures a point."""

    point: Point
    round: Count
    models: str | None = None
    """The model folder."""
    picture: str | None = None
    """File for the first image of the point."""
