"""The protocol of a deployment's workflow service. All methods belong to one event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from calotype.core.errors import CalotypeError, ExitCode
from calotype.serve.queue.repository.uploads import Upload
from calotype.spec.job import Job, PictureFile
from calotype.spec.workflow import WorkflowSubmission


class WorkflowRefusedError(CalotypeError):
    """An invalid graph; `body` has every problem in ComfyUI's format."""

    exit_code = ExitCode.BAD_REQUEST

    def __init__(self, body: Mapping[str, Any], lines: Sequence[str]) -> None:
        self.body = body
        super().__init__("; ".join(lines))


@dataclass(frozen=True)
class AcceptedWorkflow:
    """A workflow that is on disk, and the problems of outputs that will not run."""

    job: Job
    node_errors: Mapping[str, Any] = field(default_factory=dict)


class WorkflowService(Protocol):
    """Workflows of a deployment; methods raise CalotypeError, like those of `Service`."""

    async def submit(self, submission: WorkflowSubmission, *, client: str) -> AcceptedWorkflow:
        """Accept a workflow with the images it names; all are on disk on return."""
        ...

    async def unended(self, *, client: str | None = None) -> int:
        """Return the number of workflows that wait or run."""
        ...

    async def object_info(self, *, client: str, name: str | None = None) -> Mapping[str, Any]:
        """Describe all nodes or one, with the choices of `client`."""
        ...

    def num_nodes(self) -> int:
        """Return the number of nodes."""
        ...

    def left_out(self) -> Sequence[tuple[str, str]]:
        """Return packages whose nodes are not available, and why."""
        ...

    async def model_files(self, folder: str) -> Sequence[str]:
        """List the files in a model folder."""
        ...

    async def upload(
        self, file: PictureFile, data: bytes, *, client: str, overwrite: bool = False
    ) -> PictureFile:
        """Store an image for workflows; return its name."""
        ...

    async def uploads(self, *, client: str | None = None) -> Sequence[Upload]:
        """List uploaded images."""
        ...

    async def remove_upload(self, file: PictureFile, *, client: str) -> None:
        """Delete an upload; jobs that use it keep their copy."""
        ...

    async def picture(self, file: PictureFile, *, client: str, others: bool = False) -> bytes:
        """Read an upload or an image of a workflow by name: the client's own first.

        With `others`, a name that the client does not have is looked up among all other clients' files.
        """
        ...
