"""What one deployment serves and how much of it. Knows nothing of interfaces."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from calotype.workflow.limits import GraphLimits

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RequestLimits(BaseModel):
    """The largest request that is taken in, whatever a worker could do."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    max_pixels: Annotated[int, Field(ge=16 * 16)] = 2048 * 2048
    """Width times height of one picture."""
    max_count: Annotated[int, Field(ge=1)] = 64
    """Pictures of one job."""
    max_steps: Annotated[int, Field(ge=1)] = 200
    max_given_bytes: Annotated[int, Field(ge=1)] = 32 * 2**20
    """Of one given picture's file."""
    max_given_pixels: Annotated[int, Field(ge=1)] = 8192 * 8192
    """Width times height of one given picture."""

    def of_graphs(self) -> GraphLimits:
        """The same for what nodes make."""
        return GraphLimits(
            max_pixels=self.max_pixels,
            max_count=self.max_count,
            max_steps=self.max_steps,
            max_given_pixels=self.max_given_pixels,
        )


class DeploymentSettings(BaseModel):
    """A deployment."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    name: str = "calotype"
    models: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """What its workers load at their start; the first is meant where a request names none."""
    limits: RequestLimits = RequestLimits()
    drain_s: Seconds = 30.0
    """What running jobs have to end in when it stops."""
    stop_s: Seconds = 5.0
    """What those that did not have to leave at a step, and workers to end."""
    send_s: Seconds = 30.0
    """How long a worker may take to read a message; one that does not is ended."""
    load_s: Seconds = 1800.0
    """How long loading a model may take, and a silent worker be in a stage that it told of: such as that."""
    hang_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0
    """How long a worker that has jobs may say nothing between two steps; then it is ended."""
    max_deaths: Annotated[int, Field(ge=1)] = 5
    """Workers in a row that die without having done anything, until their place is given up."""
    first_pause_s: Seconds = 0.5
    """Before a dead worker is started again; twice as long each time it dies without having done anything."""
    longest_pause_s: Seconds = 30.0
    rest_s: Seconds = 60.0
    """Before another is tried where a place was given up, if a worker was ever ready there."""
    places_s: Seconds = 1.0
    """How often those who look at waiting jobs are told of their places in the queue, at most."""
    tidy_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """How often the history is kept within its limits."""
    probe_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """How often a small write tells whether the queue's disk takes writes."""
    refused_probe_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The same while the disk refuses them."""
    check_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0
    """How often the queue's whole database is checked for damage, at most."""
