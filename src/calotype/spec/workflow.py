"""A workflow that a client hands in. Knows nothing of nodes, queues or wires."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class WorkflowSubmission(BaseModel):
    """A graph to run. Keys that nobody knows are left out: clients send some of their own."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", use_attribute_docstrings=True)

    prompt: Any
    """Nodes by id, in ComfyUI's API format."""
    client_id: Annotated[str, Field(max_length=200)] | None = None
    """Whoever is connected under this name hears how it goes."""
    prompt_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = None
    """The job's id; the same again, asking for the same, is the same job."""
    number: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Goes before the client's jobs with a larger one; their own are counted up from 1."""
    front: bool = False
    """Goes before all of the client's."""
    extra_data: dict[str, Any] = {}
    """`extra_pnginfo` inside is written into saved pictures."""
    partial_execution_targets: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Output nodes to run for; all if not said."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Higher goes first."""
    deadline_s: Annotated[float, Field(gt=0, le=7 * 86400, allow_inf_nan=False)] | None = None
    """Seconds after acceptance by which it must have ended; it fails when they are over."""
