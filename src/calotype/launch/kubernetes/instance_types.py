"""Resources of machines by instance type: a typed view of `instances.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from calotype.core.errors import Problem, did_you_mean
from calotype.spec.launch_sections import PodPlacement

MIG = "nvidia.com/mig-"


@dataclass(frozen=True)
class Instance:
    """One instance type."""

    name: str
    gpu: str
    gpus: int
    efa_devices: int
    slices: dict[str, int]
    """Number of MIG slices of each profile per GPU."""

    def offers(self) -> dict[str, int]:
        """Number of each resource of a node, with whole GPUs or all GPUs cut the same way."""
        cut = {f"{MIG}{name.replace('+', '.')}": most * self.gpus for name, most in self.slices.items()}
        return {"nvidia.com/gpu": self.gpus, **cut}


@cache
def known_instances() -> dict[str, Instance]:
    """Instance types by name."""
    table = json.loads(files(__package__).joinpath("instances.json").read_text("utf-8"))
    return {
        name: Instance(name=name, slices=table["slices"][values["gpu"]], **values)
        for name, values in table["instances"].items()
    }


def check_instance(placement: PodPlacement, gpus: int, efa_devices: int, counted: str) -> list[Problem]:
    """Settings that a node of the chosen type can never satisfy; unknown types have no problems.

    `counted` is the name of the field with the number of GPUs.
    """
    instance = known_instances().get(placement.instance_type or "")
    if instance is None:
        return []
    problems, offered = [], instance.offers()
    resource, most = placement.gpu_resource, offered.get(placement.gpu_resource)
    if most is None and gpus and resource.startswith("nvidia.com/"):
        rule = f"{instance.name} has {instance.gpus} × {instance.gpu}, which offer no {resource}"
        problems.append(Problem("gpu_resource", f"{rule}; {did_you_mean(resource, offered)}", resource))
    elif most is not None and gpus > most:
        rule = f"{gpus} × {resource} are more than a {instance.name} has; ask for at most {most}"
        problems.append(Problem(counted, rule, gpus))
    if efa_devices > instance.efa_devices:
        most = instance.efa_devices
        rule = f"{efa_devices} adapters are more than a {instance.name} has; ask for at most {most}"
        problems.append(Problem("efa_devices", rule, efa_devices))
    return problems
