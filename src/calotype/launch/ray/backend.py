"""The backend `ray`: submits a driver as a job of a Ray cluster, and reads its status.

The tasks of an array are separate jobs of the same file.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from calotype.core.errors import Problem
from calotype.launch.backend import (
    JobRecord,
    JobState,
    JobStatus,
    LaunchError,
    LogsWanted,
    Rendered,
    TaskStatus,
)
from calotype.launch.log_files import check_wanted
from calotype.launch.ray.client import RayJobs
from calotype.launch.ray.preflight import problems_with
from calotype.launch.ray.render import entrypoint, job_variables, needs, rendered
from calotype.launch.torchrun import of_rank
from calotype.spec.launch import LaunchSpec

_STATES = {
    "PENDING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "STOPPED": JobState.CANCELLED,
    "SUCCEEDED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
}
_PENDING_GROUP = ("PENDING", "PREPARED", "RESCHEDULING")
_TIMED_OUT = 124
"""The driver's exit code at the time limit."""


class RayBackend:
    """Runs jobs on a Ray cluster."""

    name = "ray"

    def __init__(self, connect: Callable[[str | None], RayJobs] = RayJobs) -> None:
        self._connect = connect

    def render(self, spec: LaunchSpec) -> Rendered:
        return rendered(spec)

    def check(self, spec: LaunchSpec) -> list[Problem]:
        return problems_with(spec, [node.resources_total for node in self._connect(spec.ray.address).nodes()])

    def gpus_of_a_node(self, spec: LaunchSpec, /) -> int:
        nodes = self._connect(spec.ray.address).nodes()
        return int(max((node.resources_total.get("GPU", 0) for node in nodes), default=0))

    def submit(self, spec: LaunchSpec, folder: Path, rendered: Rendered, /) -> str:
        jobs, mark = self._connect(spec.ray.address), f"{spec.name}-{uuid.uuid4().hex[:8]}"
        tasks = [None] if spec.array is None else list(range(spec.array))
        with tempfile.TemporaryDirectory() as upload_folder:
            # Ray uploads a whole folder, and needs only this file of the job's.
            shutil.copy(folder / rendered.main, upload_folder)
            try:
                for task in tasks:
                    # Jobs with equal folders share a copy, which Ray removes when the first of them ends.
                    Path(upload_folder, "submission").write_text(_job(mark, task), encoding="utf-8")
                    jobs.submit(
                        _job(mark, task), entrypoint(spec, task), Path(upload_folder), job_variables(spec)
                    )
            except BaseException:
                # If one task is refused, no other task keeps running, nor one whose answer was lost.
                for task in tasks:
                    with contextlib.suppress(LaunchError):
                        jobs.stop(_job(mark, task))
                raise
        return f"{jobs.address} {mark}"

    def status(self, record: JobRecord) -> JobStatus:
        jobs, mark = self._opened(record)
        if record.spec.array is None:
            return _status(jobs, mark, record.spec)
        each = [_status(jobs, _job(mark, task), record.spec) for task in range(record.spec.array)]
        tasks = [
            TaskStatus(task=task, state=one.state, reason=one.reason, exit_code=one.exit_code)
            for task, one in enumerate(each)
        ]
        nodes = [node for one in each for node in one.nodes]
        return JobStatus.of_tasks(tasks, restarts=sum(one.restarts for one in each), nodes=nodes)

    def logs(self, record: JobRecord, wanted: LogsWanted) -> Iterable[str]:
        check_wanted(record, wanted)
        jobs, mark = self._opened(record)
        tasks = [wanted.task] if wanted.task is not None or record.spec.array is None else None
        names = [_job(mark, task) for task in tasks or range(record.spec.array or 0)]

        def chosen(lines: Iterable[str]) -> Iterator[str]:
            return iter(lines) if wanted.rank is None else of_rank(lines, wanted.rank)

        if not wanted.follow:
            lines = chosen(line for name in names for line in jobs.printed(name))
            return lines if wanted.lines is None else deque(lines, wanted.lines)
        return (line for name in names for line in _followed(jobs, name, chosen, wanted.lines))

    def cancel(self, record: JobRecord) -> None:
        jobs, mark = self._opened(record)
        for task in [None] if record.spec.array is None else range(record.spec.array):
            jobs.stop(_job(mark, task))

    def _opened(self, record: JobRecord) -> tuple[RayJobs, str]:
        address, _, mark = record.handle.partition(" ")
        return self._connect(address), mark


def _job(mark: str, task: int | None) -> str:
    return mark if task is None else f"{mark}-{task}"


def _followed(
    jobs: RayJobs, name: str, chosen: Callable[[Iterable[str]], Iterator[str]], lines: int | None
) -> Iterator[str]:
    """Follow all lines, or those from the last few on."""
    before = len(list(chosen(jobs.printed(name)))) if lines is not None else 0
    return islice(chosen(jobs.followed(name)), max(before - (lines or 0), 0), None)


def _status(jobs: RayJobs, name: str, spec: LaunchSpec) -> JobStatus:
    details = jobs.details(name)
    if details is None:
        return JobStatus(state=JobState.LOST, reason="the cluster does not know this job; it was restarted")
    state = _STATES[str(details.status.value)]
    if state is JobState.RUNNING:
        return _status_of_running(jobs, details, spec)
    code = details.driver_exit_code
    if state is JobState.FAILED and code == _TIMED_OUT:
        state = JobState.TIMED_OUT
    # If there is an exit code, Ray's message only repeats the log.
    message = "" if code is not None or state is not JobState.FAILED else str(details.message)
    return JobStatus(
        state=state, reason=message.partition("\n")[0], exit_code=code if state.is_over else None
    )


def _status_of_running(jobs: RayJobs, details: Any, spec: LaunchSpec) -> JobStatus:
    """The status of a running driver: whether it has its nodes."""
    groups = jobs.groups(details.job_id) if details.job_id else []
    restarts = max(len(groups) - 1, 0)
    if not groups or groups[-1].state in _PENDING_GROUP:
        amounts = ", ".join(f"{number:g} {name}" for name, number in needs(spec).items())
        reason = f"waits for {spec.nodes} node{'s' if spec.nodes > 1 else ''} with {amounts}"
        return JobStatus(state=JobState.PENDING, reason=reason, restarts=restarts)
    names = {node.node_id: str(node.node_ip) for node in jobs.nodes()}
    ids = [str(bundle.get("node_id")) for bundle in groups[-1].bundles or ()]
    return JobStatus(
        state=JobState.RUNNING,
        restarts=restarts,
        nodes=tuple(sorted({names.get(node, node) for node in ids})),
    )
