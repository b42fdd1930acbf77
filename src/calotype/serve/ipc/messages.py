"""Messages between the server and a worker.

Images are attachments: bytes beside the message, which describes them. Every job sent to a worker ends with
exactly one of Finished, WorkflowFinished, Failed or Stopped, or with the worker's death.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from calotype.core.errors import CalotypeError
from calotype.spec.job import JobFailure, NodeFailure, PictureFile
from calotype.workflow.limits import GraphLimits


class UnsendableError(CalotypeError):
    """A message that no channel can carry. Nothing of it was sent."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class Work(_Message):
    """To a worker: generate this job's images. Attachments: the input image and mask, where there are any."""

    kind: Literal["work"] = "work"
    job_id: str
    model: str
    request: dict[str, Any]
    has_image: bool = False
    has_mask: bool = False
    previews: bool = False
    """Whether a client wants previews."""
    preset: str | None = None
    """The worker's default if None."""


class RunWorkflow(_Message):
    """To a worker: run this graph. Attachments: its input images, in the order of `inputs`."""

    kind: Literal["run_workflow"] = "run_workflow"
    job_id: str
    sequence: int
    """The job's sequence number, which makes the names of its images unique."""
    prompt: dict[str, Any]
    outputs: tuple[str, ...]
    """The output nodes to run."""
    extra_pnginfo: dict[str, Any] = {}
    inputs: tuple[str, ...] = ()
    """The names of its input images in the graph."""
    limits: GraphLimits | None = None
    """Limits on what its nodes create."""


class Stop(_Message):
    """To a worker: stop this job at the next step."""

    kind: Literal["stop"] = "stop"
    job_id: str


class Watch(_Message):
    """To a worker: make previews of this job, or no longer."""

    kind: Literal["watch"] = "watch"
    job_id: str
    previews: bool


class Load(_Message):
    """To a worker: load this model. Answered by Models, or by ModelFailed."""

    kind: Literal["load"] = "load"
    model: str


class Unload(_Message):
    """To a worker: unload this model when no job uses it. Answered by Models."""

    kind: Literal["unload"] = "unload"
    model: str


class ForgetResults(_Message):
    """To a worker: drop the cached node results of earlier workflows. Not answered."""

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
    """The largest image that fits into this worker's memory; None if unknown."""
    preset: str | None = None
    """Its preset; None for the worker's default."""
    sampling: SamplingValues | None = None
    """What the model runs with where a request does not give these values; None if not known."""


class Hello(_Message):
    """From a worker, once: it can take jobs."""

    kind: Literal["hello"] = "hello"
    pid: int
    device: str
    """Display name: 'cpu', or the GPU's."""
    preset: str
    precision: str
    room: int
    """Jobs it takes at a time: enough to fill a batch while another is being finished."""


class Models(_Message):
    """From a worker: the loaded models, and how much memory is free."""

    kind: Literal["models"] = "models"
    models: tuple[LoadedModel, ...]
    memory_bytes: int
    free_bytes: int
    asked: str | None = None
    """The model in the Load or Unload that this answers; None if it answers none."""


class ModelFailed(_Message):
    """From a worker: a model could not be loaded, and why."""

    kind: Literal["model_failed"] = "model_failed"
    model: str
    failure: JobFailure


class Loading(_Message):
    """From a worker: the progress of loading a model."""

    kind: Literal["loading"] = "loading"
    label: str
    done: int
    total: int


class Stage(_Message):
    """From a worker: a stage that may take far longer than a step has begun or ended."""

    kind: Literal["stage"] = "stage"
    label: str | None = None
    """The current stage; None when it has ended."""


class Stepped(_Message):
    """From a worker: a job has finished a step. Attachment: a small PNG where `has_preview`."""

    kind: Literal["stepped"] = "stepped"
    job_id: str
    steps_done: int
    steps_total: int
    has_preview: bool = False


class MadeFile(_Message):
    """An image that a node saved; the file is an attachment."""

    file: PictureFile
    width: int
    height: int


class NodeNews(_Message):
    """From a worker: a workflow has made progress. Attachments: the images of `files`, or a preview."""

    kind: Literal["node_news"] = "node_news"
    job_id: str
    happened: Literal["started", "cached", "executing", "progressed", "executed"]
    node: str | None = None
    """The node; None for `started` and `cached`."""
    nodes: tuple[str, ...] = ()
    """Of `cached`: the nodes whose outputs were cached."""
    value: int = 0
    maximum: int = 0
    """Progress in `progressed`: `value` of `maximum`."""
    has_preview: bool = False
    """Of `progressed`: a small JPEG or PNG is attached."""
    ui: dict[str, Any] | None = None
    """Of `executed`: the node's output for the user interface."""
    files: tuple[MadeFile, ...] = ()
    """Of `executed`: the images that the node saved."""
    nodes_done: int = 0
    nodes_total: int = 0


class WorkflowFinished(_Message):
    """From a worker: all nodes of a workflow have run; their outputs were sent before."""

    kind: Literal["workflow_finished"] = "workflow_finished"
    job_id: str


class Finished(_Message):
    """From a worker: a job's images. Attachments: PNG files, in the order of the seeds."""

    kind: Literal["finished"] = "finished"
    job_id: str
    request: dict[str, Any]
    """The request with all defaults that the model decided."""
    widths: tuple[int, ...]
    heights: tuple[int, ...]
    seeds: tuple[int, ...]


class Failed(_Message):
    """From a worker: a job has failed; others are not affected."""

    kind: Literal["failed"] = "failed"
    job_id: str
    failure: JobFailure
    node: NodeFailure | None = None
    """Of a workflow: the node that failed."""


class Stopped(_Message):
    """From a worker: a job was stopped on request."""

    kind: Literal["stopped"] = "stopped"
    job_id: str


class Evaluated(_Message):
    """From a worker: one UNet evaluation, for the metrics, and the jobs that it advanced."""

    kind: Literal["evaluated"] = "evaluated"
    rows: int
    jobs: int
    seconds: float
    steps: dict[str, tuple[int, int]] = {}
    """Steps done and total steps, by job; a job with a preview sends its own Stepped."""


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
