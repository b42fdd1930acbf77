"""The command, environment and resources of a training container, the same in every kind of job."""

from __future__ import annotations

from typing import Any

from calotype.launch.kubernetes.pod_template import environment, literal, resources
from calotype.launch.shell import all_variables
from calotype.launch.torchrun import DEFAULT_PORT, torchrun_options
from calotype.spec.launch import TASK, LaunchSpec


def container_command(spec: LaunchSpec, *, host: str, task: int | None) -> list[str]:
    """The command of a node. `host` is the first node's address, and may be a variable such as `$(NAME)`."""
    # A TrainJob has no field for the working directory.
    words = ["env", f"--chdir={literal(spec.directory)}"] if spec.directory else []
    words.append(literal(spec.interpreter))
    if spec.launcher == "torchrun":
        port = spec.network.rendezvous_port or DEFAULT_PORT
        words += ["-m", "torch.distributed.run"]
        words += torchrun_options(spec, endpoint=f"{host}:{port}", run_id=object_name(spec, task))
    words += ["-m", "calotype"]
    return words + [literal(word.replace(TASK, str(task))) for word in spec.words()]


def container_environment(spec: LaunchSpec) -> list[dict[str, Any]]:
    return environment(all_variables(spec))


def container_resources(spec: LaunchSpec) -> dict[str, Any]:
    return resources(
        spec.kubernetes,
        gpus=spec.gpus_per_node,
        cpus=spec.cpus_per_node,
        memory=spec.memory_per_node,
        efa_devices=spec.network.efa_devices,
        huge_pages=spec.kubernetes.huge_pages,
    )


def object_name(spec: LaunchSpec, task: int | None) -> str:
    """The name of a job's object, or of one task of its array."""
    return spec.name if task is None else f"{spec.name}-{task}"
