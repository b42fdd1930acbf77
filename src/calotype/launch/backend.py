"""The backend interface: renders a spec, checks it, submits it, reads the job's status and logs, cancels it.

Job states are the same on every backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from calotype.core.errors import CalotypeError, Problem
from calotype.spec.launch import LaunchSpec


class JobState(StrEnum):
    """The state of a job."""

    PENDING = "pending"
    """Submitted and waiting for nodes; also after a preemption."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    """The backend does not know the job (any more), and the job left no exit code."""

    @property
    def is_over(self) -> bool:
        return self not in (JobState.PENDING, JobState.RUNNING)


class LaunchError(CalotypeError):
    """The backend is unavailable or refused; the message includes its own words."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class TaskStatus(_Frozen):
    """One task of an array."""

    task: int
    state: JobState
    reason: str = ""
    exit_code: int | None = None


class JobStatus(_Frozen):
    """The status of a job, in terms that are the same on every backend."""

    state: JobState
    reason: str = ""
    """Why it waits or why it failed, in the backend's words."""
    exit_code: int | None = None
    restarts: int = 0
    """Number of requeues or restarts."""
    nodes: tuple[str, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    """Tasks of an array."""

    @classmethod
    def of_tasks(
        cls, tasks: Sequence[TaskStatus], *, restarts: int = 0, nodes: Iterable[str] = ()
    ) -> JobStatus:
        """The status of an array: it runs while any task runs, and has failed if any task has."""
        state = next(state for state in _FIRST_OF_ARRAY if any(task.state is state for task in tasks))
        reported = next(task for task in tasks if task.state is state)
        return cls(
            state=state,
            reason=reported.reason,
            exit_code=reported.exit_code,
            restarts=restarts,
            nodes=tuple(sorted(set(nodes))),
            tasks=tuple(tasks),
        )


_FIRST_OF_ARRAY = (
    JobState.RUNNING,
    JobState.PENDING,
    JobState.FAILED,
    JobState.TIMED_OUT,
    JobState.LOST,
    JobState.CANCELLED,
    JobState.COMPLETED,
)


class JobRecord(_Frozen):
    """The record of a submitted job, in the job's own folder."""

    format: Literal["calotype.launch.1"] = "calotype.launch.1"
    id: str
    backend: str
    handle: str
    """The backend's id of the job: Slurm's job id, a process, `NAMESPACE/NAME`."""
    folder: str
    """Absolute path."""
    spec: LaunchSpec
    files: tuple[str, ...]
    """Rendered files, relative to the folder."""
    submitted_at: str
    """ISO 8601, in UTC."""
    ended: JobStatus | None = None
    """The final status, once it has been read: backends forget ended jobs."""

    @property
    def logs(self) -> Path:
        return Path(self.folder) / LOGS


LOGS, SCRIPT_LOG = "logs", "batch.log"
"""In a job's folder: the output of its processes, and of the script that starts them."""


@dataclass(frozen=True)
class Rendered:
    """Files by name, the submitted one first, and notes for the user."""

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """For instance the command that imports a container image."""

    @property
    def main(self) -> str:
        """The name of the submitted file."""
        return next(iter(self.files))


class Backend(Protocol):
    """One way to run jobs. Created for every command: all state is in the record."""

    name: str

    def render(self, spec: LaunchSpec) -> Rendered:
        """Render files that can be used without Calotype. Works offline; raises RequestError for settings
        that the backend does not support. The same spec gives the same files."""
        ...

    def check(self, spec: LaunchSpec) -> list[Problem]:
        """Check the spec against the cluster before submission: unknown partitions, too many GPUs. Raises
        LaunchError if the cluster does not answer."""
        ...

    def submit(self, spec: LaunchSpec, folder: Path, rendered: Rendered, /) -> str:
        """Submit the rendered files, which exist in `folder` already; returns the job's handle."""
        ...

    def status(self, record: JobRecord) -> JobStatus: ...

    def logs(self, record: JobRecord, wanted: LogsWanted) -> Iterable[str]:
        """Log lines without line ends."""
        ...

    def cancel(self, record: JobRecord) -> None:
        """Cancel the job; no effect on an ended one."""
        ...


@runtime_checkable
class KnowsItsNodes(Protocol):
    """A backend that knows the resources of its nodes."""

    def gpus_of_a_node(self, spec: LaunchSpec, /) -> int:
        """The largest number of GPUs of a node that the spec can run on."""
        ...


@dataclass(frozen=True)
class LogsWanted:
    """Selects log lines of a job."""

    rank: int | None = None
    """Only this rank."""
    task: int | None = None
    """Only this task of an array."""
    lines: int | None = None
    """Only the last lines, so many."""
    follow: bool = False
    """Follow new lines until the job ends."""
