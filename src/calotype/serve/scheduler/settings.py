"""Settings of a deployment: models, request limits and timeouts."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from calotype.workflow.limits import GraphLimits

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RequestLimits(BaseModel):
    """The largest request that is accepted, whatever a worker could do."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    max_pixels: Annotated[int, Field(ge=16 * 16)] = 2048 * 2048
    """Width times height of one image."""
    max_count: Annotated[int, Field(ge=1)] = 64
    """Images of one job."""
    max_steps: Annotated[int, Field(ge=1)] = 200
    max_given_bytes: Annotated[int, Field(ge=1)] = 32 * 2**20
    """File size of one input image."""
    max_given_pixels: Annotated[int, Field(ge=1)] = 8192 * 8192
    """Width times height of one input image."""

    def of_graphs(self) -> GraphLimits:
        """The same limits for a workflow's nodes."""
        return GraphLimits(
            max_pixels=self.max_pixels,
            max_count=self.max_count,
            max_steps=self.max_steps,
            max_given_pixels=self.max_given_pixels,
        )


class DeploymentSettings(BaseModel):
    """Settings of one deployment."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    name: str = "calotype"
    models: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Models that its workers load at their start; the first is the default of requests that name none."""
    limits: RequestLimits = RequestLimits()
    drain_s: Seconds = 30.0
    """How long running jobs may take to end when it stops."""
    stop_s: Seconds = 5.0
    """After that, how long the remaining jobs may take to stop at a step, and workers to end."""
    send_s: Seconds = 30.0
    """How long a worker may take to read a message before it is killed."""
    load_s: Seconds = 1800.0
    """How long loading a model may take, and how long a worker may be silent in a stage that it announced."""
    hang_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0
    """How long a worker with jobs may be silent between two steps before it is killed."""
    max_deaths: Annotated[int, Field(ge=1)] = 5
    """Workers in a row that die without doing any work before their slot is given up."""
    first_pause_s: Seconds = 0.5
    """Pause before a dead worker is restarted; doubled each time one dies without doing any work."""
    longest_pause_s: Seconds = 30.0
    rest_s: Seconds = 60.0
    """Pause before a given-up slot tries another worker, if a worker was ever ready there."""
    places_s: Seconds = 1.0
    """The shortest interval between two updates of queue positions."""
    tidy_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """How often the history's limits are enforced."""
    probe_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """How often a small write checks whether the queue's disk accepts writes."""
    refused_probe_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The same while the disk refuses them."""
    check_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0
    """The shortest interval between two checks of the whole database for damage."""
