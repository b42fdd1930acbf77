"""How a job of Slurm's stands: what the controller says, else the accounting, else what the job left behind.

The controller forgets a job some minutes after its end, and many clusters keep no accounting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from calotype.launch.backend import JobRecord, JobState, JobStatus, LaunchError, TaskStatus
from calotype.launch.slurm.programs import SlurmRefusedError, asked
from calotype.launch.slurm.script import EXIT_CODE

_STATES = {
    "COMPLETED": JobState.COMPLETED,
    "CANCELLED": JobState.CANCELLED,
    "PREEMPTED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMED_OUT,
    "DEADLINE": JobState.TIMED_OUT,
    "BOOT_FAIL": JobState.FAILED,
    "FAILED": JobState.FAILED,
    "NODE_FAIL": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
}
"""All else is some kind of waiting."""
_FORGOTTEN = "Invalid job id"


def status_of(record: JobRecord) -> JobStatus:
    """How a job stands."""
    try:
        text = asked("scontrol", "show", "job", "--oneliner", record.handle)
    except SlurmRefusedError as error:
        if _FORGOTTEN not in error.said:
            raise
        return _accounted(record) or _left_behind(record)
    return from_controller(text, record.spec.array)


def from_controller(text: str, array: int | None) -> JobStatus:
    """From `scontrol show job --oneliner`: a line for each task that has started, one for those that wait."""
    lines = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
    jobs = [job for job in lines if "JobState" in job]
    if array is None:
        return _of_job(jobs[0])
    tasks = {task: _of_job(job) for job in jobs for task in tasks_in(job.get("ArrayTaskId", ""))}
    return combined(tasks, array)


def tasks_in(text: str) -> list[int]:
    """The numbers in `3`, `1-4`, `0,2-3%2`."""
    numbers: list[int] = []
    for part in text.partition("%")[0].split(","):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if bounds:
            numbers += range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1)
    return numbers


def combined(tasks: Mapping[int, JobStatus], array: int) -> JobStatus:
    """An array as one job; of a task that nobody speaks of nothing is known."""
    missing = JobStatus(state=JobState.LOST)
    each = [tasks.get(number, missing) for number in range(array)]
    tasks_told = [
        TaskStatus(task=number, state=status.state, reason=status.reason, exit_code=status.exit_code)
        for number, status in enumerate(each)
    ]
    return JobStatus.of_tasks(
        tasks_told,
        restarts=sum(status.restarts for status in each),
        nodes=(node for status in each for node in status.nodes),
    )


def _of_job(job: Mapping[str, str]) -> JobStatus:
    state = _STATES.get(job["JobState"], JobState.PENDING)
    reason = job.get("Reason", "None")
    code, _, by_signal = job.get("ExitCode", "0:0").partition(":")
    nodes = job.get("NodeList", "(null)")
    return JobStatus(
        state=state,
        reason="" if reason == "None" else reason,
        exit_code=(int(code) or (128 + int(by_signal) if int(by_signal) else 0)) if state.is_over else None,
        restarts=int(job.get("Restarts", "0")),
        nodes=() if nodes in ("", "(null)") else (nodes,),
    )


def _accounted(record: JobRecord) -> JobStatus | None:
    """From Slurm's accounting, where there is one."""
    columns = "JobID,State,ExitCode,NodeList"
    try:
        text = asked(
            *("sacct", "--noheader", "--parsable2", "--allocations", f"--format={columns}"),
            *("--jobs", record.handle),
        )
    except LaunchError:
        return None
    return from_accounting(text, record.spec.array)


def from_accounting(text: str, array: int | None) -> JobStatus | None:
    """From `sacct --parsable2`; None where it knows nothing of the job."""
    tasks: dict[int, JobStatus] = {}
    for line in text.splitlines():
        number, state, code, nodes = line.split("|")
        job = {"JobState": state.split()[0], "ExitCode": code, "NodeList": nodes}
        for task in tasks_in(number.partition("_")[2].strip("[]") or "0"):
            tasks[task] = _of_job(job)
    if not tasks:
        return None
    return tasks.get(0) if array is None else combined(tasks, array)


def _left_behind(record: JobRecord) -> JobStatus:
    """From the code that the job's script writes as its last act."""
    if record.spec.array is None:
        return _from_file(Path(record.folder) / EXIT_CODE)
    tasks = {n: _from_file(Path(record.folder) / f"{EXIT_CODE}.{n}") for n in range(record.spec.array)}
    return combined(tasks, record.spec.array)


def _from_file(file: Path) -> JobStatus:
    try:
        code = int(file.read_text())
    except (OSError, ValueError):
        return JobStatus(state=JobState.LOST, reason="Slurm has forgotten it, and it left no exit code")
    return JobStatus(state=JobState.FAILED if code else JobState.COMPLETED, exit_code=code)
