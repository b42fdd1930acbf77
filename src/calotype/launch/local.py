"""The local backend: a script that runs in the background on this machine and writes its exit code to a file.

It outlives its shell. Torchrun starts the processes, as on every backend; the tasks of an array run one after
the other.
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
from calotype.core.process import process_start_time
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
from calotype.launch.shell import all_variables, continued, exports, started
from calotype.spec.launch import LaunchSpec

FILE = "job.sh"
EXIT_CODE, CANCELLED = "exit-code", "cancelled"
_DETACHED = 'echo "$$"; exec /bin/bash "$1" >> "$2" 2>&1'
_TIMED_OUT = 124
"""The exit code of `timeout` at the time limit."""
_LATE = f"""# A process that had to be killed after the time limit exits with 137 as well.
if [ "$code" = 137 ] && [ $((SECONDS - began)) -ge {{}} ]; then code={_TIMED_OUT}; fi
"""
# torchrun gives its processes the grace period and kills them itself; it must not be killed before that.
_EXTRA_GRACE_S = 15


class LocalBackend:
    """Runs jobs as processes of this machine."""

    name = "local"

    def __init__(self, gpus: GpuSource | None = None) -> None:
        self._gpus = gpus or NvmlGpus()

    def render(self, spec: LaunchSpec) -> Rendered:
        problems = []
        if spec.nodes > 1:
            rule = f"{spec.nodes} nodes are more than this one machine; use nodes=1, or another backend"
            problems.append(Problem("nodes", rule, spec.nodes))
        if spec.image is not None:
            rule = "local jobs run in this machine's own Python; leave it out, or use another backend"
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
        # Detached, in a session of its own: neither our exit nor a closed terminal affects it.
        detached = ["setsid", "--fork", "/bin/bash", "-c", _DETACHED]
        started_process = subprocess.run(  # noqa: S603 - our own script, whose values are quoted
            [*detached, FILE, str(folder / rendered.main), str(folder / SCRIPT_LOG)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        pid = int(started_process.stdout)
        # The start time distinguishes it from a later process with that pid; 0 if it has ended already.
        return f"{pid}:{process_start_time(pid) or 0}"

    def status(self, record: JobRecord) -> JobStatus:
        running, folder = _runs(record), Path(record.folder)
        if record.spec.array is None:
            return _ended(folder) if not running else JobStatus(state=JobState.RUNNING)
        tasks = []
        for number in range(record.spec.array):
            code = _code(folder / f"{EXIT_CODE}.{number}")
            if code is not None:
                one = _of_code(code)
            elif running:
                begun = (record.logs / f"task-{number}-node-0.log").exists()
                one = JobStatus(state=JobState.RUNNING if begun else JobState.PENDING)
            else:
                one = _ended(folder)
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
            # Another process may have got the pid before pidfd_open.
            if _runs(record):
                (Path(record.folder) / CANCELLED).touch()
                signal.pidfd_send_signal(watched, signal.SIGTERM)
        finally:
            os.close(watched)


def _pid(record: JobRecord) -> int:
    return int(record.handle.partition(":")[0])


def _runs(record: JobRecord) -> bool:
    return process_start_time(_pid(record)) == (int(record.handle.partition(":")[2]) or -1)


def _ended(folder: Path) -> JobStatus:
    """The final status of the script."""
    if (folder / CANCELLED).exists():
        return JobStatus(state=JobState.CANCELLED)
    code = _code(folder / EXIT_CODE)
    if code is None:
        return JobStatus(state=JobState.LOST, reason="it was killed, or the machine shut down")
    return _of_code(code)


def _code(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _of_code(code: int) -> JobStatus:
    state = JobState.TIMED_OUT if code == _TIMED_OUT else JobState.FAILED if code else JobState.COMPLETED
    return JobStatus(state=state, exit_code=code)


def _script(spec: LaunchSpec) -> str:
    head = [
        "#!/bin/bash",
        f"# {shlex.join(['calotype', *spec.words()])}",
        f"# on this machine. Does not need Calotype's launcher; start it with: bash {FILE}",
        "set -e",
        f"folder={shlex.quote(spec.folder)}",
        f'mkdir -p "$folder/{LOGS}"',
        "# On any exit: the lines before the command may fail too.",
        f'trap \'echo "$?" > "$folder/{EXIT_CODE}"\' EXIT',
        *([f"cd {shlex.quote(spec.directory)}"] if spec.directory else []),
        *spec.setup,
        *exports(all_variables(spec)),
        "",
        "# On SIGTERM the processes save; this script waits for them.",
        f"trap '{'stopped=yes; ' if spec.array else ''}kill -TERM \"$running\" 2>/dev/null || true' TERM",
        "",
    ]
    if spec.array is None:
        return "\n".join([*head, f'{_one(spec, "node-0.log")}exit "$code"\n'])
    inside = "".join(
        f"  {line}\n" if line else "\n" for line in _one(spec, "task-$task-node-0.log").splitlines()
    )
    # A stopped task gets no exit code.
    after = f'  [ -z "$stopped" ] || break\n  echo "$code" > "$folder/{EXIT_CODE}.$task"\n'
    body = f"stopped=\nfor task in {{0..{spec.array - 1}}}; do\n{inside}{after}done\n"
    return "\n".join([*head, body])


def _one(spec: LaunchSpec, log: str) -> str:
    lines = started(spec, endpoint="localhost:0", run_id=spec.name, task="$task")
    # Also without a time limit: it forwards SIGTERM, and kills processes that do not exit.
    patience_s = spec.grace_s + (_EXTRA_GRACE_S if spec.launcher == "torchrun" else 0)
    limit = f"timeout --signal=TERM --kill-after={patience_s} {spec.time_limit_s or 0}"
    command = continued([[limit, *lines[0]], *lines[1:], [f'>> "$folder/{LOGS}/{log}" 2>&1']])
    began, late = ("began=$SECONDS\n", _LATE.format(spec.time_limit_s)) if spec.time_limit_s else ("", "")
    return f"""{began}{command} &
running=$!
# A signal interrupts `wait` before the process has ended.
while kill -0 "$running" 2>/dev/null; do
  wait "$running" || true
done
code=0
wait "$running" || code=$?
{late}"""
