"""What is asked of a process that measures: one point of a sweep, to the last setting. Runs nothing.

A job holds everything that decides a point's numbers, so its identity follows from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calotype.spec.generate_request import GenerateRequest
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import Setting, identity_of

OURS = "calotype"
BASELINES = ("diffusers-eager", "diffusers-compile")
"""The plain diffusers pipeline or training loop, as it is and with torch.compile."""
BASELINE_SAMPLER = {"sampler": "euler", "schedule": "normal"}
"""At which diffusers' pipeline visits the same noise levels as ours."""
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
"""Settings that mean nothing to peers, which have one way to do each of these, by kind: one point of theirs
stands beside all of ours that differ in them."""
System = Literal["calotype", "diffusers-eager", "diffusers-compile"]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[int, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class InferenceJob(_Frozen):
    """A batch of pictures, again and again."""

    kind: Literal["inference"] = "inference"
    system: System = "calotype"
    model: str
    preset: str | None
    """None for peers, which have none."""
    precision: str | None = None
    """The device's usual one if not said."""
    device: str | None = None
    request: GenerateRequest
    """Its count is the batch."""
    units: Count = 5
    """Batches by the clock."""
    warmup: Amount = 2
    """Batches before."""
    judged: bool = True
    """Whether pictures that a pass may change are held against the plain ones."""


class TrainJob(_Frozen):
    """Training steps."""

    kind: Literal["train"] = "train"
    system: System = "calotype"
    recipe: Recipe
    device: str | None = None
    units: Count = 30
    """Steps by the clock."""
    warmup: Amount = 10
    """Steps before."""


Job = Annotated[InferenceJob | TrainJob, Field(discriminator="kind")]


class Point(_Frozen):
    """One point of a sweep."""

    name: str
    settings: dict[str, Setting]
    """What the sweep varies."""
    job: Job
    command: str
    """What a person types to measure it again."""

    @property
    def id(self) -> str:
        return identity_of(self.job.model_dump(mode="json"))


class Ticket(_Frozen):
    """What the process of a point is given."""

    point: Point
    round: Count
    models: str | None = None
    """The model folder."""
    picture: str | None = None
    """A file for what the point's first picture looks like."""
