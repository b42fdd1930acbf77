"""Renders the sbatch file of a spec, which can be used without Calotype. Works offline.

On preemption Slurm sends SIGTERM to the processes and requeues the job by itself. Before the time limit it
only signals the script, which then does the same.
"""

from __future__ import annotations

import re
import shlex

from calotype.core.errors import Problem, RequestError
from calotype.launch.backend import LOGS, SCRIPT_LOG, JobState, Rendered
from calotype.launch.shell import all_variables, continued, exports, started
from calotype.spec.launch import LaunchSpec

FILE = "job.sbatch"
EXIT_CODE = "exit-code"
_TASK_VARIABLE = "$SLURM_ARRAY_TASK_ID"
# The job id of an array task may be that of the whole array, which would address all tasks.
_JOB = "$SLURM_JOB_ID"
_TASK_OF_JOB = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+=@~-]+")

# A cancelled job is not running any more, and must not be requeued. (Before a preemption Slurm signals only
# the processes, not this script.)
_REQUEUE = """# Slurm requeues a job that it had to kill, but not one that saved and ended in time.
if [[ $state == *JobState=RUNNING* && ( -n $warned || $state == *PreemptTime=[0-9]* ) ]]; then
  scontrol requeue "$job"
  exit
fi
"""


def rendered(spec: LaunchSpec) -> Rendered:
    """Render the file, with notes on what must be done before it can run."""
    _check(spec)
    parts = [_head(spec), _environment(spec), _save_trap(spec), _srun(spec), _exit_handling(spec)]
    return Rendered({FILE: "\n".join(parts)}, _notes(spec))


def _check(spec: LaunchSpec) -> None:
    """Refuse values that sbatch files cannot hold: #SBATCH lines have no quotes, and % is special."""
    problems = [
        Problem(
            field, f"{path!r} may only hold letters, digits and _ . / + = @ ~ -; use another folder", path
        )
        for field, path in (("work_folder", spec.folder), ("directory", spec.directory))
        if path is not None and not _PLAIN_PATH.fullmatch(path)
    ]
    problems += [
        Problem("mounts", f"{mount} is a Kubernetes volume claim; mount a folder", str(mount))
        for mount in spec.mounts
        if mount.claim is not None
    ]
    if spec.mounts and spec.image is None:
        problems.append(Problem("mounts", "mounts need a container; set image, or leave them out"))
    if problems:
        raise RequestError(problems)


def _head(spec: LaunchSpec) -> str:
    per_node = f"{spec.processes_on_a_node} process{'es' if spec.processes_on_a_node > 1 else ''}"
    lines = [
        "#!/bin/bash",
        f"# {shlex.join(['calotype', *spec.words()])}",
        f"# on {spec.nodes} node{'s' if spec.nodes > 1 else ''} with {per_node} each.",
        f"# Does not need Calotype's launcher; submit it with: sbatch {FILE}",
        *(f"#SBATCH --{option}" for option in _options(spec)),
    ]
    return "\n".join(lines) + "\n"


def _options(spec: LaunchSpec) -> list[str]:
    slurm = spec.slurm
    array = None
    if spec.array:
        array = f"0-{spec.array - 1}" + (f"%{spec.array_at_once}" if spec.array_at_once else "")
    gpus = f"{slurm.gpu_type}:{spec.gpus_per_node}" if slurm.gpu_type else spec.gpus_per_node or None
    output = f"{spec.folder}/{'task-%a.log' if spec.array else SCRIPT_LOG}"
    values = {
        "job-name": spec.name,
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "reservation": slurm.reservation,
        "nodes": spec.nodes if spec.min_nodes is None else f"{spec.min_nodes}-{spec.nodes}",
        "ntasks-per-node": 1,
        "gpus-per-node": gpus,
        "cpus-per-task": spec.cpus_per_node,
        "mem": spec.memory_per_node,
        "time": _clock(spec.time_limit_s) if spec.time_limit_s else None,
        "array": array,
        "chdir": spec.directory if spec.image is None else None,
        "output": output,
        "open-mode": "append",
        # To this script only; it signals the processes.
        "signal": f"B:USR1@{spec.grace_s}",
    }
    options = [f"{name}={value}" for name, value in values.items() if value is not None]
    options += ["exclusive"] if slurm.exclusive else []
    options += ["no-kill"] if spec.min_nodes is not None else []
    return [*options, "requeue" if spec.requeue else "no-requeue"]


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def _environment(spec: LaunchSpec) -> str:
    lines = ["set -e", *spec.setup, *exports(all_variables(spec))]
    lines += [f"folder={shlex.quote(spec.folder)}", f'mkdir -p "$folder/{LOGS}"']
    if spec.launcher == "torchrun":
        lines += [
            "",
            "# This script runs on the first node, which hosts the rendezvous. Jobs that share a node",
            "# need ports of their own.",
            f'rdzv_endpoint="$(hostname):{_port(spec)}"',
        ]
    return "\n".join(lines) + "\n"


def _port(spec: LaunchSpec) -> str:
    return str(spec.network.rendezvous_port or "$((20000 + SLURM_JOB_ID % 10000))")


def _save_trap(spec: LaunchSpec) -> str:
    what = "requeue" if spec.requeue else "exit"
    return f"""# {spec.grace_s} s before the time limit Slurm signals this script: save and {what}.
job="{_TASK_OF_JOB if spec.array else _JOB}"
warned=
save() {{
  warned=yes
  scancel --signal=TERM "$job" || true
}}
trap save USR1
# On SIGTERM the processes save; this script waits for them.
trap : TERM
"""


def _srun(spec: LaunchSpec) -> str:
    log = f"{'task-%a-' if spec.array else ''}node-%n.log"
    options = [f'--output="$folder/{LOGS}/{log}" --open-mode=append']
    options[0] += "" if spec.min_nodes is not None else " --kill-on-bad-exit=1"
    # Without this option Slurm gives a step one CPU, whatever the job has.
    if spec.cpus_per_node or spec.slurm.exclusive:
        number = spec.cpus_per_node or '"$SLURM_CPUS_ON_NODE"'
        options.append(f"--cpus-per-task={number}")
    if spec.image is not None:
        options.append(f"--container-image={shlex.quote(pyxis_image(spec.image))}")
        if spec.mounts:
            mounts = ",".join(str(mount) for mount in spec.mounts)
            options.append(f"--container-mounts={shlex.quote(mounts)}")
        if spec.directory is not None:
            options.append(f"--container-workdir={shlex.quote(spec.directory)}")
    command = started(spec, endpoint="$rdzv_endpoint", run_id=_JOB, task=_TASK_VARIABLE)
    first, *others = options
    return continued([["srun", first], *([option] for option in others), *command]) + " &"


def _exit_handling(spec: LaunchSpec) -> str:
    code_file = f"$folder/{EXIT_CODE}" + (f".{_TASK_VARIABLE}" if spec.array else "")
    requeue = _REQUEUE if spec.requeue else ""
    return f"""running=$!
# A signal interrupts `wait` before the process has ended.
while kill -0 "$running" 2>/dev/null; do
  wait "$running" || true
done
code=0
wait "$running" || code=$?
state=$(scontrol show job --oneliner "$job" || true)
{requeue}# A job ended by Slurm may have saved and exited with 0: the code alone is not enough.
ended=
case $state in
  *JobState=RUNNING*) ;;
  *Reason=TimeLimit*) ended={JobState.TIMED_OUT} ;;
  *Reason=None*) ended={JobState.CANCELLED} ;;
esac
echo "$code" $ended > "{code_file}"
exit "$code"
"""


def pyxis_image(image: str) -> str:
    """The image in Pyxis' syntax: paths unchanged, and `REGISTRY#NAME:TAG` for `REGISTRY/NAME:TAG`."""
    registry, slash, rest = image.partition("/")
    if image.startswith("/") or "#" in image or not slash or not re.search(r"[.:]|^localhost$", registry):
        return image
    return f"{registry}#{rest}"


def _notes(spec: LaunchSpec) -> tuple[str, ...]:
    if spec.image is None or spec.image.startswith("/"):
        return ()
    name = re.sub(r"[^A-Za-z0-9.]+", "-", spec.image.rpartition("/")[2])
    return (
        "Slurm needs Pyxis for the container, and every start pulls the image. To pull it once:\n"
        f"  enroot import --output /SHARED/{name}.sqsh docker://{pyxis_image(spec.image)}\n"
        f"and then set image=/SHARED/{name}.sqsh",
    )
