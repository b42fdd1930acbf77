"""This machine as a back end: a script that runs in the background and leaves behind how it ended.

It survives its shell. Torchrun starts the processes, as everywhere; the tasks of an array run one after the
other.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from calotype.core.errors import Problem, RequestError
from calotype.core.hardware import GpuSource, read_cpu
from calotype.core.nvml import NvmlGpus
from calotype.core.processes import born
from calotype.launch.backend import (
    LOGS,
    SCRIPT_LOG,
    JobRecord,
    JobState,
    JobStatus,
    LogsWanted,
    Rendered,
    TaskStatus,
)
from calotype.launch.log_files import lines_of
from calotype.launch.script import all_variables, continued, exports, started
from calotype.spec.launch import LaunchSpec

FILE = "job.sh"
EXIT_CODE, CANCELLED = "exit-code", "cancelled"
_DETACHED = 'echo "$$"; exec /bin/bash "$1" >> "$2" 2>&1'
_TIMED_OUT = 124
"""What `timeout` ends with."""


class LocalBackend:
    """Processes of this machine."""

    name = "local"

    def __init__(self, gpus: GpuSource | None = None) -> None:
        self._gpus = gpus or NvmlGpus()

    def render(self, spec: LaunchSpec) -> Rendered:
        problems = []
        if spec.nodes > 1:
            rule = f"{spec.nodes} are more than this one machine; use nodes=1, or another back end"
            problems.append(Problem("nodes", rule, spec.nodes))
        if spec.image is not None:
            rule = "local runs in this machine's own Python; leave it out, or use another back end"
            problems.append(Problem("image", rule, spec.image))
        if problems:
            raise RequestError(problems)
        return Rendered({FILE: _script(spec)})

    def check(self, spec: LaunchSpec) -> list[Problem]:
        problems = []
        cpus = read_cpu().num_usable_cores
        if (spec.cpus_per_node or 0) > cpus:
            rule = f"{spec.cpus_per_node} CPUs are more than this machine has; ask for at most {cpus}"
            problems.append(Problem("cpus_per_node", rule, spec.cpus_per_node))
        gpus = self.gpus_of_a_node(spec) if spec.gpus_per_node else 0
        if spec.gpus_per_node > gpus:
            rule = f"{spec.gpus_per_node} GPUs are more than this machine has; ask for at most {gpus}"
            problems.append(Problem("gpus_per_node", rule, spec.gpus_per_node))
        return problems

    def gpus_of_a_node(self, _spec: LaunchSpec, /) -> int:
        return len(self._gpus.survey().gpus)

    def submit(self, _spec: LaunchSpec, folder: Path, rendered: Rendered, /) -> str:
        # Not our child, and in a session of its own: neither we nor a closed terminal are anything to it.
        detached = ["setsid", "--fork", "/bin/bash", "-c", _DETACHED]
        told = subprocess.run(  # noqa: S603 - our own script, whose values are quoted
            [*detached, FILE, str(folder / rendered.main), str(folder / SCRIPT_LOG)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        pid = int(told.stdout)
        # When it began tells it from a later process of that number; one that has ended already began at 0.
        return f"{pid}:{born(pid) or 0}"

    def status(self, record: JobRecord) -> JobStatus:
        running, folder = _runs(record), Path(record.folder)
        if record.spec.array is None:
            return _ended(folder, "") if not running else JobStatus(state=JobState.RUNNING)
        tasks = []
        for number in range(record.spec.array):
            one = _ended(folder, f".{number}")
            if one.state in (JobState.LOST, JobState.CANCELLED) and running:
                begun = (record.logs / f"task-{number}-node-0.log").exists()
                one = JobStatus(state=JobState.RUNNING if begun else JobState.PENDING)
            tasks.append(TaskStatus(task=number, state=one.state, reason=one.reason, exit_code=one.exit_code))
        return JobStatus.of_tasks(tasks)

    def logs(self, record: JobRecord, wanted: LogsWanted) -> Iterable[str]:
        return lines_of(record, wanted, lambda: not _runs(record))

    def cancel(self, record: JobRecord) -> None:
        try:
            watched = os.pidfd_open(_pid(record))
        except ProcessLookupError:
            return
        try:
            # The number may have gone to another process between looking and opening.
            if _runs(record):
                (Path(record.folder) / CANCELLED).touch()
                signal.pidfd_send_signal(watched, signal.SIGTERM)
        finally:
            os.close(watched)


def _pid(record: JobRecord) -> int:
    return int(record.handle.partition(":")[0])


def _runs(record: JobRecord) -> bool:
    return born(_pid(record)) == (int(record.handle.partition(":")[2]) or -1)


def _ended(folder: Path, task: str) -> JobStatus:
    if (folder / CANCELLED).exists():
        return JobStatus(state=JobState.CANCELLED)
    try:
        code = int((folder / f"{EXIT_CODE}{task}").read_text())
    except (OSError, ValueError):
        return JobStatus(state=JobState.LOST, reason="it was killed, or the machine went down")
    state = JobState.TIMED_OUT if code == _TIMED_OUT else JobState.FAILED if code else JobState.COMPLETED
    return JobStatus(state=state, exit_code=code)


def _script(spec: LaunchSpec) -> str:
    head = [
        "#!/bin/bash",
        f"# {shlex.join(['calotype', *spec.words()])}",
        f"# on this machine. Needs nothing but what it runs; start it with: bash {FILE}",
        "set -e",
        *([f"cd {shlex.quote(spec.directory)}"] if spec.directory else []),
        *spec.setup,
        *exports(all_variables(spec)),
        f"folder={shlex.quote(spec.folder)}",
        f'mkdir -p "$folder/{LOGS}"',
        "",
        "# Told to stop, the processes save; this script waits for them.",
        f"trap '{'stopped=yes; ' if spec.array else ''}kill -TERM \"$running\" 2>/dev/null || true' TERM",
        "",
    ]
    if spec.array is None:
        body = _one(spec, "node-0.log", EXIT_CODE)
    else:
        inside = "".join(
            f"  {line}\n" if line else "\n"
            for line in _one(spec, "task-$task-node-0.log", f"{EXIT_CODE}.$task").splitlines()
        )
        body = (
            f'stopped=\nfor task in {{0..{spec.array - 1}}}; do\n{inside}  [ -z "$stopped" ] || break\ndone\n'
        )
    return "\n".join([*head, body]) + ('exit "$code"\n' if spec.array is None else "")


def _one(spec: LaunchSpec, log: str, exit_code: str) -> str:
    lines = started(spec, endpoint="localhost:0", run_id=spec.name, task="$task")
    if spec.time_limit_s:
        limit = f"timeout --signal=TERM --kill-after={spec.grace_s} {spec.time_limit_s}"
        lines = [[limit, *lines[0]], *lines[1:]]
    command = continued([*lines, [f'>> "$folder/{LOGS}/{log}" 2>&1']])
    return f"""{command} &
running=$!
# A signal ends a wait before what it waits for.
while kill -0 "$running" 2>/dev/null; do
  wait "$running" || true
done
code=0
wait "$running" || code=$?
echo "$code" > "$folder/{exit_code}"
"""
