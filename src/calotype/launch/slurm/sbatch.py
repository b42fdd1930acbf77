"""Writes the sbatch file of a spec. Asks nobody, and needs no Calotype to be used.

Slurm tells processes to stop by SIGTERM when it takes the nodes back, and puts the job into the queue again
by itself. Ahead of the time limit it only warns the script, which then does the same.
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
# One task of an array has the number of the whole, which would speak for all of them.
_JOB = "$SLURM_JOB_ID"
_TASK_OF_JOB = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+=@~-]+")

# A cancelled job does not run any more, and must not come back. (Slurm tells only the processes, not this
# script, that they have some seconds left before they are preempted.)
_REQUEUE = """# Slurm puts a job back that it had to kill, but not one that saved and ended in time.
if [[ $state == *JobState=RUNNING* && ( -n $warned || $state == *PreemptTime=[0-9]* ) ]]; then
  scontrol requeue "$job"
  exit
fi
"""


def rendered(spec: LaunchSpec) -> Rendered:
    """The file, and what has to be done before it can run."""
    _check(spec)
    parts = [_head(spec), _surroundings(spec), _saving(spec), _running(spec), _ending(spec)]
    return Rendered({FILE: "\n".join(parts)}, _notes(spec))


def _check(spec: LaunchSpec) -> None:
    """What only Slurm's files cannot hold: #SBATCH lines know no quotes, and % means something there."""
    problems = [
        Problem(
            field, f"{path!r} holds more than letters, digits and _ . / + = @ ~ -; use another folder", path
        )
        for field, path in (("work_folder", spec.folder), ("directory", spec.directory))
        if path is not None and not _PLAIN_PATH.fullmatch(path)
    ]
    problems += [
        Problem("mounts", f"{mount} is a Kubernetes claim; mount a folder", str(mount))
        for mount in spec.mounts
        if mount.claim is not None
    ]
    if spec.mounts and spec.image is None:
        problems.append(Problem("mounts", "only a container has mounts; set image, or leave them out"))
    if problems:
        raise RequestError(problems)


def _head(spec: LaunchSpec) -> str:
    per_node = f"{spec.processes_on_a_node} process{'es' if spec.processes_on_a_node > 1 else ''}"
    lines = [
        "#!/bin/bash",
        f"# {shlex.join(['calotype', *spec.words()])}",
        f"# on {spec.nodes} node{'s' if spec.nodes > 1 else ''} with {per_node} each.",
        f"# Needs nothing but Slurm and what it runs; hand it in with: sbatch {FILE}",
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
    given = {
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
        # To this script alone; it tells the others.
        "signal": f"B:USR1@{spec.grace_s}",
    }
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    options += ["exclusive"] if slurm.exclusive else []
    options += ["no-kill"] if spec.min_nodes is not None else []
    return [*options, "requeue" if spec.requeue else "no-requeue"]


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02d}:{minutes:02d}:{seconds:02d}"


def _surroundings(spec: LaunchSpec) -> str:
    lines = ["set -e", *spec.setup, *exports(all_variables(spec))]
    lines += [f"folder={shlex.quote(spec.folder)}", f'mkdir -p "$folder/{LOGS}"']
    if spec.launcher == "torchrun":
        lines += [
            "",
            "# This script runs on the first node, where the others find it. Jobs that share a node",
            "# need ports of their own.",
            f'meeting_place="$(hostname):{_port(spec)}"',
        ]
    return "\n".join(lines) + "\n"


def _port(spec: LaunchSpec) -> str:
    return str(spec.network.rendezvous_port or "$((20000 + SLURM_JOB_ID % 10000))")


def _saving(spec: LaunchSpec) -> str:
    what = "and go back into the queue" if spec.requeue else "and end"
    return f"""# {spec.grace_s} s before its time is over the job is warned: save, {what}.
job="{_TASK_OF_JOB if spec.array else _JOB}"
warned=
save() {{
  warned=yes
  scancel --signal=TERM "$job" || true
}}
trap save USR1
# Told to stop, the processes save; this script waits for them.
trap : TERM
"""


def _running(spec: LaunchSpec) -> str:
    log = f"{'task-%a-' if spec.array else ''}node-%n.log"
    options = [f'--output="$folder/{LOGS}/{log}" --open-mode=append']
    options[0] += "" if spec.min_nodes is not None else " --kill-on-bad-exit=1"
    # Slurm gives a step one processor if it is not told, whatever the job has.
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
    command = started(spec, endpoint="$meeting_place", run_id=_JOB, task=_TASK_VARIABLE)
    first, *others = options
    return continued([["srun", first], *([option] for option in others), *command]) + " &"


def _ending(spec: LaunchSpec) -> str:
    code_file = f"$folder/{EXIT_CODE}" + (f".{_TASK_VARIABLE}" if spec.array else "")
    requeue = _REQUEUE if spec.requeue else ""
    return f"""running=$!
# A signal ends a wait before what it waits for.
while kill -0 "$running" 2>/dev/null; do
  wait "$running" || true
done
code=0
wait "$running" || code=$?
state=$(scontrol show job --oneliner "$job" || true)
{requeue}# What Slurm ends may have saved and ended well: the code alone would not tell.
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
    """As Pyxis writes it: a path as it is, and `REGISTRY#NAME:TAG` for `REGISTRY/NAME:TAG`."""
    registry, slash, rest = image.partition("/")
    if image.startswith("/") or "#" in image or not slash or not re.search(r"[.:]|^localhost$", registry):
        return image
    return f"{registry}#{rest}"


def _notes(spec: LaunchSpec) -> tuple[str, ...]:
    if spec.image is None or spec.image.startswith("/"):
        return ()
    name = re.sub(r"[^A-Za-z0-9.]+", "-", spec.image.rpartition("/")[2])
    return (
        "Slurm needs Pyxis for the container, and every start fetches the image. To fetch it once:\n"
        f"  enroot import --output /SHARED/{name}.sqsh docker://{pyxis_image(spec.image)}\n"
        f"and then image=/SHARED/{name}.sqsh",
    )
