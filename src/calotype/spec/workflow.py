"""The workflow submission of a client."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class WorkflowSubmission(BaseModel):
    """A graph to run. Unknown keys are ignored, as clients send their own."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", use_attribute_docstrings=True)

    prompt: Any
    """Nodes by id, in ComfyUI's API format."""
    client_id: Annotated[str, Field(max_length=200)] | None = None
    """The websocket client with this id receives the events."""
    prompt_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    """Id of the job; submitting the same id with the same content again is the same job."""
    number: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Order among the jobs of the client, smaller first; by default numbers count up from 1."""
    front: bool = False
    """Put the job before all other jobs of the client."""
    extra_data: dict[str, Any] = {}
    """`extra_pnginfo` inside is written into saved pictures."""
    partial_execution_targets: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Output nodes to run. Default: all."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Jobs with a higher priority run first."""
    deadline_s: Annotated[float, Field(gt=0, le=7 * 86400, allow_inf_nan=False)] | None = None
    """Seconds after acceptance; a job that has not ended by then fails."""
