"""What the server and a worker say to each other. Knows nothing of how messages travel.

Pictures travel as attachments: bytes beside the message, which says what they are. Every job that was handed
over ends with exactly one of Finished, WorkflowFinished, Failed or Stopped, or with the worker's death.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from calotype.core.errors import CalotypeError
from calotype.spec.job import JobFailure, NodeFailure, PictureFile
from calotype.workflow.limits import GraphLimits


class UnsendableError(CalotypeError):
    """A message that no channel can carry. Nothing of it was sent: the other side knows nothing of it."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Work(_Message):
    """To a worker: make this job's pictures. Attachments: the given image and mask, where there are any."""

    kind: Literal["work"] = "work"
    job_id: str
    model: str
    request: dict[str, Any]
    has_image: bool = False
    has_mask: bool = False
    previews: bool = False
    """Whether anybody is looking."""
    preset: str | None = None
    """The worker's own if not said."""


class RunWorkflow(_Message):
    """To a worker: run this graph. Attachments: the pictures it reads, in the order of `inputs`."""

    kind: Literal["run_workflow"] = "run_workflow"
    job_id: str
    sequence: int
    """Of the job: part of its pictures' names, which are then nobody else's."""
    prompt: dict[str, Any]
    outputs: tuple[str, ...]
    """The nodes to run for."""
    extra_pnginfo: dict[str, Any] = {}
    inputs: tuple[str, ...] = ()
    """What the graph calls its pictures."""
    limits: GraphLimits | None = None
    """Of what its nodes make."""


class Stop(_Message):
    """To a worker: leave this job at the next step."""

    kind: Literal["stop"] = "stop"
    job_id: str


class Watch(_Message):
    """To a worker: somebody looks at this job now, or nobody any more."""

    kind: Literal["watch"] = "watch"
    job_id: str
    previews: bool


class Load(_Message):
    """To a worker: have this model ready. Answered by Models, or by ModelFailed."""

    kind: Literal["load"] = "load"
    model: str


class Unload(_Message):
    """To a worker: let this model go when no job of its own uses it. Answered by Models."""

    kind: Literal["unload"] = "unload"
    model: str


class ForgetResults(_Message):
    """To a worker: let go what the nodes of earlier workflows made. Not answered."""

    kind: Literal["forget_results"] = "forget_results"


class SamplingValues(_Message):
    """Values of a request that a model has defaults for."""

    steps: int
    cfg: float
    sampler: str
    schedule: str


class LoadedModel(_Message):
    name: str
    architecture: str
    sha256: str
    random: bool
    bytes: int
    max_pixels: int | None = None
    """Of one picture; a larger one never fits into the memory of this worker. Not said where nobody knows."""
    preset: str | None = None
    """That it runs with; not said where it is the worker's own."""
    sampling: SamplingValues | None = None
    """What the model runs with where a request does not give these values; None if not known."""


class Hello(_Message):
    """From a worker, once, when it can take work."""

    kind: Literal["hello"] = "hello"
    pid: int
    device: str
    """Its name for people: 'cpu', or the GPU's."""
    preset: str
    precision: str
    room: int
    """Jobs it wants at a time: enough to fill a batch while another is being finished."""


class Models(_Message):
    """From a worker: what it holds now, and how much memory is left to it."""

    kind: Literal["models"] = "models"
    models: tuple[LoadedModel, ...]
    memory_bytes: int
    free_bytes: int
    asked: str | None = None
    """The name in the Load or Unload that this answers; not said where nobody asked."""


class ModelFailed(_Message):
    """From a worker: a model that could not be loaded, and why."""

    kind: Literal["model_failed"] = "model_failed"
    model: str
    failure: JobFailure


class Loading(_Message):
    """From a worker: how far loading has come."""

    kind: Literal["loading"] = "loading"
    label: str
    done: int
    total: int


class Stage(_Message):
    """From a worker: something began that may take far longer than a step, or is over."""

    kind: Literal["stage"] = "stage"
    label: str | None = None
    """What it is in now; None when that is over."""


class Stepped(_Message):
    """From a worker: a step of a job is done, told by itself. Attachment: a small PNG where `has_preview`."""

    kind: Literal["stepped"] = "stepped"
    job_id: str
    steps_done: int
    steps_total: int
    has_preview: bool = False


class MadeFile(_Message):
    """A picture that a node saved, which is an attachment."""

    file: PictureFile
    width: int
    height: int


class NodeNews(_Message):
    """From a worker: a workflow went on. Attachments: the pictures of `files`, or a preview."""

    kind: Literal["node_news"] = "node_news"
    job_id: str
    happened: Literal["started", "cached", "executing", "progressed", "executed"]
    node: str | None = None
    """Which node; None for `started` and `cached`."""
    nodes: tuple[str, ...] = ()
    """Of `cached`: whose outputs were known."""
    value: int = 0
    maximum: int = 0
    """How far `progressed` has come."""
    has_preview: bool = False
    """Of `progressed`: a small JPEG or PNG is attached."""
    ui: dict[str, Any] | None = None
    """Of `executed`: what the node has to show."""
    files: tuple[MadeFile, ...] = ()
    """Of `executed`: the pictures it saved."""
    nodes_done: int = 0
    nodes_total: int = 0


class WorkflowFinished(_Message):
    """From a worker: a workflow's nodes have all been run, and everything they made was told before."""

    kind: Literal["workflow_finished"] = "workflow_finished"
    job_id: str


class Finished(_Message):
    """From a worker: a job's pictures. Attachments: PNG files, in the order of the seeds."""

    kind: Literal["finished"] = "finished"
    job_id: str
    request: dict[str, Any]
    """With everything filled in that the model decided."""
    widths: tuple[int, ...]
    heights: tuple[int, ...]
    seeds: tuple[int, ...]


class Failed(_Message):
    """From a worker: a job that cannot be done; the others are not touched by it."""

    kind: Literal["failed"] = "failed"
    job_id: str
    failure: JobFailure
    node: NodeFailure | None = None
    """Of a workflow: where it failed."""


class Stopped(_Message):
    """From a worker: a job it left because it was told to."""

    kind: Literal["stopped"] = "stopped"
    job_id: str


class Evaluated(_Message):
    """From a worker: one UNet evaluation, for the metrics, and whom it brought a step further."""

    kind: Literal["evaluated"] = "evaluated"
    rows: int
    jobs: int
    seconds: float
    steps: dict[str, tuple[int, int]] = {}
    """Steps done and in all, by job; one that has a preview to show is told of by itself."""


ToWorker = Annotated[
    Work | RunWorkflow | Stop | Watch | Load | Unload | ForgetResults, Field(discriminator="kind")
]
FromWorker = Annotated[
    Hello
    | Models
    | ModelFailed
    | Loading
    | Stage
    | Stepped
    | Finished
    | NodeNews
    | WorkflowFinished
    | Failed
    | Stopped
    | Evaluated,
    Field(discriminator="kind"),
]
TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(ToWorker)
FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(FromWorker)
