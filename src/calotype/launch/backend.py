"""What a back end is: renders a spec, checks it, hands it in, and tells and ends what came of it.

The states are the same everywhere. Knows no back end, nor where records are kept.
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
    """How a job stands."""

    PENDING = "pending"
    """Handed in, waiting for nodes; also when it was preempted and waits to go on."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    """The back end knows nothing of it (any more), and it left no word of its end."""

    @property
    def is_over(self) -> bool:
        return self not in (JobState.PENDING, JobState.RUNNING)


class LaunchError(CalotypeError):
    """A back end that is not there, or that refused; the message holds its own words."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


class TaskStatus(_Frozen):
    """One task of an array."""

    task: int
    state: JobState
    reason: str = ""
    exit_code: int | None = None


class JobStatus(_Frozen):
    """How a job stands, in words that are the same on every back end."""

    state: JobState
    reason: str = ""
    """Why it waits, or why it failed, in the back end's words."""
    exit_code: int | None = None
    restarts: int = 0
    """How often it was put back into the queue, or started again."""
    nodes: tuple[str, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    """Of an array."""

    @classmethod
    def of_tasks(
        cls, tasks: Sequence[TaskStatus], *, restarts: int = 0, nodes: Iterable[str] = ()
    ) -> JobStatus:
        """An array as one job: it runs while any task does, and has failed if any did."""
        state = next(state for state in _FIRST_OF_ARRAY if any(task.state is state for task in tasks))
        telling = next(task for task in tasks if task.state is state)
        return cls(
            state=state,
            reason=telling.reason,
            exit_code=telling.exit_code,
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
    """What is kept of a job from its submission on, in the job's own folder."""

    format: Literal["calotype.launch.1"] = "calotype.launch.1"
    id: str
    backend: str
    handle: str
    """What the back end calls it: Slurm's number, a process, `NAMESPACE/NAME`."""
    folder: str
    """Absolute."""
    spec: LaunchSpec
    files: tuple[str, ...]
    """What was rendered, relative to the folder."""
    submitted_at: str
    """ISO 8601, in UTC."""
    ended: JobStatus | None = None
    """How it ended, once somebody has asked after that: back ends forget."""

    @property
    def logs(self) -> Path:
        return Path(self.folder) / LOGS


LOGS, SCRIPT_LOG = "logs", "batch.log"
"""In a job's folder: what its processes print, and what the script does that starts them."""


@dataclass(frozen=True)
class Rendered:
    """Files by name, the one that is handed in first, and what to tell the user about them."""

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """For instance the command that imports a container's image."""

    @property
    def main(self) -> str:
        """The name of the file that is handed in."""
        return next(iter(self.files))


class Backend(Protocol):
    """One way of running jobs. Made anew for every command: what it must remember is in the record."""

    name: str

    def render(self, spec: LaunchSpec) -> Rendered:
        """Files that can be used without Calotype. Asks nobody; raises RequestError for what the back end
        cannot do. The same spec gives the same files."""
        ...

    def check(self, spec: LaunchSpec) -> list[Problem]:
        """What the cluster would refuse, asked of it before submission: unknown partitions, too many GPUs.
        Raises LaunchError where the cluster cannot be asked."""
        ...

    def submit(self, spec: LaunchSpec, folder: Path, rendered: Rendered, /) -> str:
        """Hand in what was rendered, whose files are in `folder` already; the answer is the job's handle."""
        ...

    def status(self, record: JobRecord) -> JobStatus: ...

    def logs(self, record: JobRecord, wanted: LogsWanted) -> Iterable[str]:
        """Lines without their ends."""
        ...

    def cancel(self, record: JobRecord) -> None:
        """Ask for its end; one that is over already is left alone."""
        ...


@runtime_checkable
class KnowsItsNodes(Protocol):
    """A back end that can be asked what its machines have."""

    def gpus_of_a_node(self, spec: LaunchSpec, /) -> int:
        """The most that one of the nodes has which the spec could run on."""
        ...


@dataclass(frozen=True)
class LogsWanted:
    """Which lines of a job."""

    rank: int | None = None
    """Of one process alone."""
    task: int | None = None
    """Of one task of an array."""
    lines: int | None = None
    """Only so many of the last."""
    follow: bool = False
    """Go on with new lines until the job is over."""
