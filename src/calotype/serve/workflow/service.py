"""What a deployment does for workflows, whichever interface asks. All methods belong to one event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from calotype.core.errors import CalotypeError, ExitCode
from calotype.serve.queue.repository.uploads import Upload
from calotype.spec.job import Job, PictureFile
from calotype.spec.workflow import WorkflowSubmission


class WorkflowRefusedError(CalotypeError):
    """A graph that cannot be run; `body` has every problem, in the contract's form."""

    exit_code = ExitCode.BAD_REQUEST

    def __init__(self, body: Mapping[str, Any], lines: Sequence[str]) -> None:
        self.body = body
        super().__init__("; ".join(lines))


@dataclass(frozen=True)
class AcceptedWorkflow:
    """A workflow that is on disk, and what is wrong with outputs that will not be made."""

    job: Job
    node_errors: Mapping[str, Any] = field(default_factory=dict)


class WorkflowService(Protocol):
    """What goes wrong is a CalotypeError, as with a `Service`."""

    async def submit(self, submission: WorkflowSubmission, *, client: str) -> AcceptedWorkflow:
        """Accept a workflow with the pictures it names: all is on disk when this returns."""
        ...

    async def unended(self, *, client: str | None = None) -> int:
        """How many workflows wait or run."""
        ...

    async def object_info(self, *, client: str, name: str | None = None) -> Mapping[str, Any]:
        """What nodes there are, all or one, with what `client` may choose."""
        ...

    def num_nodes(self) -> int:
        """How many nodes there are."""
        ...

    def left_out(self) -> Sequence[tuple[str, str]]:
        """Packages whose nodes are not there, and why."""
        ...

    async def model_files(self, folder: str) -> Sequence[str]:
        """Names in one of the model folders."""
        ...

    async def upload(
        self, file: PictureFile, data: bytes, *, client: str, overwrite: bool = False
    ) -> PictureFile:
        """Keep a picture for workflows to come; answers with the name it got."""
        ...

    async def uploads(self, *, client: str | None = None) -> Sequence[Upload]:
        """Pictures that were given."""
        ...

    async def remove_upload(self, file: PictureFile, *, client: str) -> None:
        """Forget a given picture; jobs that have it keep it."""
        ...

    async def picture(self, file: PictureFile, *, client: str, others: bool = False) -> bytes:
        """An upload, or an image of a workflow, by its name: the client's own first.

        With `others`, a name that the client does not have is searched among all other clients' files.
        """
        ...
