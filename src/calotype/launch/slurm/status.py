"""Reads the status of a Slurm job: from the controller, else the accounting, else the job's exit-code file.

The controller forgets a job some minutes after its end, and many clusters have no accounting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from calotype.launch.backend import JobRecord, JobState, JobStatus, LaunchError, TaskStatus
from calotype.launch.slurm.commands import SlurmRefusedError, run_slurm
from calotype.launch.slurm.sbatch import EXIT_CODE

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
"""All other states are some kind of waiting."""
_UNKNOWN_JOB = "Invalid job id"
_NO_NODES = ("", "(null)", "None assigned")
"""How the controller and the accounting write an empty node list."""


def number_of(script: Path, name: str) -> str | None:
    """The id of a waiting or running job by its file; None if there is none or Slurm does not answer."""
    try:
        text = run_slurm("squeue", "--noheader", f"--name={name}", "--format=%F|%o")
    except LaunchError:
        return None
    return next((line.partition("|")[0] for line in text.split() if line.endswith(f"|{script}")), None)


def status_of(record: JobRecord) -> JobStatus:
    """The status of a job. The controller forgets the tasks of an array one by one."""
    expected, known = set(range(record.spec.array or 1)), _from_controller(record)
    for read_tasks in (_from_accounting, _from_exit_files):
        if not expected <= known.keys():
            known = {**read_tasks(record), **known}
    return known[0] if record.spec.array is None else combined(known, record.spec.array)


def _from_controller(record: JobRecord) -> dict[int, JobStatus]:
    """Tasks that the controller still knows."""
    try:
        text = run_slurm("scontrol", "show", "job", "--oneliner", record.handle)
    except SlurmRefusedError as error:
        if _UNKNOWN_JOB not in error.said:
            raise
        return {}
    return from_controller(text)


def from_controller(text: str) -> dict[int, JobStatus]:
    """Parse `scontrol show job --oneliner`: one line per started task, one for all waiting tasks.

    A job without an array has one task, 0.
    """
    lines = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
    jobs = [job for job in lines if "JobState" in job]
    return {task: _of_job(job) for job in jobs for task in tasks_in(job.get("ArrayTaskId", "0"))}


def tasks_in(text: str) -> list[int]:
    """The numbers in `3`, `1-4`, `0-8:2`, `0,2-3%2`."""
    numbers: list[int] = []
    for part in text.partition("%")[0].split(","):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if bounds:
            numbers += range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1, int(bounds[3] or 1))
    return numbers


def combined(tasks: Mapping[int, JobStatus], array: int) -> JobStatus:
    """The status of an array."""
    each = [tasks[number] for number in range(array)]
    task_statuses = [
        TaskStatus(task=number, state=status.state, reason=status.reason, exit_code=status.exit_code)
        for number, status in enumerate(each)
    ]
    return JobStatus.of_tasks(
        task_statuses,
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
        nodes=() if nodes in _NO_NODES else (nodes,),
    )


def _from_accounting(record: JobRecord) -> dict[int, JobStatus]:
    """Tasks from Slurm's accounting, if there is one."""
    columns = "JobID,State,ExitCode,NodeList"
    try:
        text = run_slurm(
            *("sacct", "--noheader", "--parsable2", "--allocations", f"--format={columns}"),
            *("--jobs", record.handle),
        )
    except LaunchError:
        return {}
    return from_accounting(text)


def from_accounting(text: str) -> dict[int, JobStatus]:
    """Parse `sacct --parsable2`; a job without an array has one task, 0."""
    tasks: dict[int, JobStatus] = {}
    for line in text.splitlines():
        number, state, code, nodes = line.split("|")
        job = {"JobState": state.split()[0], "ExitCode": code, "NodeList": nodes}
        for task in tasks_in(number.partition("_")[2].strip("[]") or "0"):
            tasks[task] = _of_job(job)
    return tasks


def _from_exit_files(record: JobRecord) -> dict[int, JobStatus]:
    """Tasks from the files that the script writes at its end: its exit code, and whether Slurm ended it."""
    folder = Path(record.folder)
    if record.spec.array is None:
        return {0: _from_file(folder / EXIT_CODE)}
    return {task: _from_file(folder / f"{EXIT_CODE}.{task}") for task in range(record.spec.array)}


def _from_file(file: Path) -> JobStatus:
    try:
        code_text, *ended = file.read_text().split()
        code = int(code_text)
        state = JobState(ended[0]) if ended else JobState.FAILED if code else JobState.COMPLETED
    except (OSError, ValueError):
        return JobStatus(state=JobState.LOST, reason="Slurm no longer knows it, and it left no exit code")
    return JobStatus(state=state, exit_code=code)
