"""A request that a deployment has accepted, and the news of it. Knows nothing of queues, workers or wires."""

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
"""Pictures of one request, or a graph of nodes."""

FailureKind = Literal[
    "bad_request", "not_found", "bad_model_file", "does_not_fit", "deadline", "worker_lost", "internal"
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Submission(_Frozen):
    """What a client hands in."""

    request: GenerateRequest
    model: Annotated[str, Field(max_length=255)] | None = None
    """One of the deployment's models; its first if not said."""
    preset: str | None = None
    """Optimisations to make it with; those that the worker was started with if not said."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Higher goes first."""
    deadline_s: Annotated[float, Field(gt=0, le=7 * 86400, allow_inf_nan=False)] | None = None
    """Seconds after acceptance by which it must have ended; it fails when they are over."""
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The same key from the same client is the same job: sending it again makes nothing twice."""

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str | None) -> str | None:
        return name if name is None else known_preset(name)


def known_preset(name: str) -> str:
    """The name; a ValueError if no preset has it."""
    if name in PRESETS:
        return name
    nearest, known = did_you_mean(name[:60], PRESETS), f"known: {', '.join(sorted(PRESETS))}"
    raise ValueError(f"{short_repr(name)} is no preset; {nearest}{'' if nearest == known else f' {known}'}")


class JobFailure(_Frozen):
    """Why there are no pictures."""

    kind: FailureKind
    message: str


class NodeFailure(_Frozen):
    """Which node of a workflow failed, and how."""

    node: str
    node_class: str
    error: str
    """The name of what was raised."""
    message: str
    traceback: tuple[str, ...] = ()


class PictureFile(_Frozen):
    """The name under which a workflow's picture can be asked for."""

    filename: str
    subfolder: str
    type: Literal["input", "output", "temp"]


class JobPicture(_Frozen):
    """One finished picture, which the deployment keeps as a file."""

    sha256: str
    bytes: int
    width: int
    height: int
    seed: int | None = None
    """None where a workflow made it, whose nodes have seeds of their own."""
    file: PictureFile | None = None
    """Of a workflow's picture."""


class WorkflowReport(_Frozen):
    """What came of a workflow's nodes."""

    outputs: dict[str, Any] = {}
    """What nodes have to show, by node: `{"images": [{"filename", "subfolder", "type"}]}` and the like."""
    cached: tuple[str, ...] = ()
    """Nodes whose outputs were known from before."""
    executed: tuple[str, ...] = ()
    """Nodes that ran, in their order."""
    failed: NodeFailure | None = None


class Job(_Frozen):
    """A job as it stands. Times are seconds since 1970."""

    id: str
    kind: JobKind = "pictures"
    sequence: int = 0
    """Counts a deployment's jobs in the order they were accepted."""
    client: str
    """Name of the API key that asked, or `local`."""
    state: JobState
    model: str
    request: dict[str, Any]
    """As accepted; what the model decides is filled in once it runs."""
    priority: int
    position: int | None
    """Jobs in front of it while it is queued."""
    created_at: float
    started_at: float | None
    ended_at: float | None
    deadline_at: float | None
    steps_done: int
    steps_total: int
    attempts: int
    """How often it was begun: more than once when a worker died under it."""
    pictures: tuple[JobPicture, ...]
    failure: JobFailure | None
    idempotency_key: str | None
    report: WorkflowReport | None = None
    """Of a workflow that has ended."""
    preset: str | None = None
    """As asked for; not said where the worker's own is meant."""


class JobNews(_Frozen):
    """One piece of news of a job, in the order it happened."""

    job: Job
    preview: bytes | None = None
    """A small PNG of what is there so far."""
