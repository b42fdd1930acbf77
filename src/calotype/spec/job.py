"""Submissions, jobs and job events of a deployment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from calotype.core.errors import did_you_mean
from calotype.spec.constants import PRESETS
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.validation_errors import short_repr

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
FINAL_STATES: frozenset[JobState] = frozenset({"done", "failed", "cancelled"})
"""A job enters one of these once and never leaves it."""

JobKind = Literal["pictures", "workflow"]
"""Images of one request, or a workflow."""

FailureKind = Literal[
    "bad_request", "not_found", "bad_model_file", "does_not_fit", "deadline", "worker_lost", "internal"
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Submission(_Frozen):
    """A generation request of a client."""

    request: GenerateRequest
    model: Annotated[str, Field(max_length=255)] | None = None
    """A model of the deployment. Default: its first."""
    preset: str | None = None
    """Optimization preset. Default: that of the worker."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Jobs with a higher priority run first."""
    deadline_s: Annotated[float, Field(gt=0, le=7 * 86400, allow_inf_nan=False)] | None = None
    """Seconds after acceptance; a job that has not ended by then fails."""
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The same key from the same client is the same job, so repeated submission is safe."""

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str | None) -> str | None:
        return name if name is None else known_preset(name)


def known_preset(name: str) -> str:
    """The name; raises ValueError if it is not a preset."""
    if name in PRESETS:
        return name
    nearest, known = did_you_mean(name[:60], PRESETS), f"known: {', '.join(sorted(PRESETS))}"
    raise ValueError(f"{short_repr(name)} is no preset; {nearest}{'' if nearest == known else f' {known}'}")


class JobFailure(_Frozen):
    """Why a job failed."""

    kind: FailureKind
    message: str


class NodeFailure(_Frozen):
    """The failed node of a workflow and its error."""

    node: str
    node_class: str
    error: str
    """Class name of the exception."""
    message: str
    traceback: tuple[str, ...] = ()


class PictureFile(_Frozen):
    """File name of an image of a workflow, as in ComfyUI's /view."""

    filename: str
    subfolder: str
    type: Literal["input", "output", "temp"]


class JobPicture(_Frozen):
    """A finished image, stored as a file by the deployment."""

    sha256: str
    bytes: int
    width: int
    height: int
    seed: int | None = None
    """None for workflows, whose nodes have their own seeds."""
    file: PictureFile | None = None
    """Set for images of workflows."""


class WorkflowReport(_Frozen):
    """Results of the nodes of a workflow."""

    outputs: dict[str, Any] = {}
    """UI outputs by node: `{"images": [{"filename", "subfolder", "type"}]}` and the like."""
    cached: tuple[str, ...] = ()
    """Nodes whose outputs came from the cache."""
    executed: tuple[str, ...] = ()
    """Nodes that ran, in order."""
    failed: NodeFailure | None = None


class Job(_Frozen):
    """The present state of a job. Times are seconds since 1970."""

    id: str
    kind: JobKind = "pictures"
    sequence: int = 0
    """Number of the job in order of acceptance."""
    client: str
    """Name of the API key of the client, or `local`."""
    state: JobState
    model: str
    request: dict[str, Any]
    """As accepted; defaults of the model are filled in once it runs."""
    priority: int
    position: int | None
    """Number of jobs ahead while it is queued."""
    created_at: float
    started_at: float | None
    ended_at: float | None
    deadline_at: float | None
    steps_done: int
    steps_total: int
    attempts: int
    """Number of attempts; more than one if a worker died."""
    pictures: tuple[JobPicture, ...]
    failure: JobFailure | None
    idempotency_key: str | None
    report: WorkflowReport | None = None
    """Set for ended workflows."""
    preset: str | None = None
    """As requested; None for the preset of the worker."""


class JobNews(_Frozen):
    """A job event; events of a job are in order."""

    job: Job
    preview: bytes | None = None
    """Preview of the unfinished image, a small PNG."""
