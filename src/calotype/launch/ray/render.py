"""Renders the driver of a spec: `driver.py` with the job's own values. Works offline, without Ray."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from importlib.resources import files
from pprint import pformat

from calotype.core.errors import Problem, RequestError
from calotype.launch.backend import Rendered
from calotype.launch.shell import all_variables
from calotype.launch.torchrun import torchrun_options
from calotype.spec.launch import LaunchSpec

FILE = "job.py"
_BEGIN, _END = "# What is run.\n", "# How it is run.\n"
_WIDTH = 100
# Ray's extra time for a driver beyond its processes' grace period: longer than the driver's own wait.
_EXTRA_GRACE_S = 30


def rendered(spec: LaunchSpec) -> Rendered:
    """Render the file; raises RequestError for settings that Ray does not support."""
    problems = list(_refusals(spec))
    if problems:
        raise RequestError(problems)
    source = files("calotype.launch.ray").joinpath("driver.py").read_text("utf-8")
    imports, _, rest = source.partition(_BEGIN)
    example, _, body = rest.partition(_END)
    values = _values(spec)
    lines = [_with_value(line, values) for line in example.splitlines()]
    # The docstring describes the example.
    imports = imports.partition('"""\n\n')[2]
    return Rendered({FILE: "\n".join([_heading(spec), imports + _BEGIN.rstrip(), *lines, _END + body])})


def entrypoint(spec: LaunchSpec, task: int | None = None) -> str:
    """The command that Ray runs in the file's folder."""
    return shlex.join([spec.interpreter, FILE, *([] if task is None else [str(task)])])


def job_variables(spec: LaunchSpec) -> dict[str, str]:
    """Ray's own variable: how long a stopped job may take to save."""
    return {"RAY_JOB_STOP_WAIT_TIME_S": str(spec.grace_s + _EXTRA_GRACE_S)}


def needs(spec: LaunchSpec) -> dict[str, float]:
    """Resources per node in Ray's terms; a job always takes a CPU, so that a full cluster counts as full."""
    required = {"CPU": spec.cpus_per_node or 1, "GPU": spec.gpus_per_node}
    memory = {"memory": spec.memory_mib * 2**20} if spec.memory_mib else {}
    return {name: number for name, number in required.items() if number} | memory | spec.ray.resources


def _refusals(spec: LaunchSpec) -> Iterator[Problem]:
    wrong = [
        (
            "image",
            spec.image is not None,
            "nodes of a Ray cluster have their own; start them in the image, and leave it out here",
        ),
        ("mounts", bool(spec.mounts), "mounts need a container, and Ray starts none; leave them out"),
        (
            "min_nodes",
            spec.min_nodes not in (None, spec.nodes),
            f"Ray gives all {spec.nodes} nodes or none; leave it out: with requeue a job that loses a node "
            "restarts",
        ),
        (
            "array_at_once",
            spec.array_at_once is not None,
            f"Ray starts all {spec.array} tasks as resources allow; leave it out",
        ),
    ]
    return (Problem(field, rule) for field, is_wrong, rule in wrong if is_wrong)


def _heading(spec: LaunchSpec) -> str:
    variables = json.dumps({"env_vars": job_variables(spec)})
    submit = [
        "ray",
        "job",
        "submit",
        "--working-dir",
        ".",
        "--runtime-env-json",
        variables,
        "--no-wait",
        "--",
    ]
    run = f"{entrypoint(spec)}{' TASK' if spec.array else ''}"
    submit[3:3] = ["--address", spec.ray.address] if spec.ray.address else []
    lines = [
        shlex.join(["calotype", *spec.words()]),
        "in a Ray cluster. Does not need Calotype's launcher; submit it with:",
        f"{shlex.join(submit)} {run}",
    ]
    if spec.array:
        lines.append(f"once for each TASK from 0 to {spec.array - 1}.")
    return "\n".join(f"# {line}" for line in lines) + "\n"


def _values(spec: LaunchSpec) -> dict[str, object]:
    module = [spec.interpreter, "-m", "calotype", *spec.words()]
    torchrun: list[str] = []
    if spec.launcher == "torchrun":
        options = torchrun_options(spec, endpoint="{rdzv_endpoint}", run_id=spec.name)
        torchrun, module = [spec.interpreter, "-m", "torch.distributed.run", *options], module[1:]
    if spec.setup:
        first = torchrun or module
        first[:0] = ["bash", "-c", "\n".join(["set -e", *spec.setup, 'exec "$@"']), "bash"]
    return {
        "NAME": spec.name,
        "NODES": spec.nodes,
        "NEEDS": needs(spec),
        "TORCHRUN": torchrun,
        "PORT": spec.network.rendezvous_port or 0,
        "COMMAND": module,
        "ENVIRONMENT": all_variables(spec),
        "DIRECTORY": spec.directory,
        "TIME_LIMIT_S": spec.time_limit_s,
        "GRACE_S": spec.grace_s,
        "REQUEUE": spec.requeue,
    }


def _with_value(line: str, values: dict[str, object]) -> str:
    """A line of the example with the job's value; comments stay unchanged."""
    name = line.partition(" = ")[0]
    key = name.partition(":")[0]
    if key not in values:
        return line
    value = values[key]
    # A string value is not wrapped: its pieces would look like a list's.
    width = sys.maxsize if isinstance(value, str) else _WIDTH
    shown = pformat(value, width=width, sort_dicts=False, compact=True)
    if "\n" not in shown:
        return f"{name} = {shown}"
    inside = shown[1:-1].replace("\n ", "\n    ")
    return f"{name} = {shown[0]}\n    {inside},\n{shown[-1]}"
