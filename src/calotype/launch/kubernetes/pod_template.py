"""The parts that all pod templates share: scheduling, resources and volumes. Plain values for YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calotype.spec.launch_sections import Mount, PodPlacement, memory_mib

Values = dict[str, Any]
EFA = "vpc.amazonaws.com/efa"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
APP, INSTANCE, TASK = "app.kubernetes.io/name", "app.kubernetes.io/instance", "calotype/task"
SHARED_MEMORY = "shared-memory"


def labels(name: str, task: int | None = None) -> dict[str, str]:
    """Labels that identify all objects of one job or server."""
    return {APP: "calotype", INSTANCE: name, **({} if task is None else {TASK: str(task)})}


def quantity(memory: str) -> str:
    """Memory in Kubernetes' syntax: its G is 1000³, so our G is its Gi."""
    return f"{memory}i"


def literal(text: str) -> str:
    """Escape $(NAME), which Kubernetes would expand."""
    return text.replace("$(", "$$(")


def environment(variables: Mapping[str, str]) -> list[Values]:
    return [{"name": name, "value": literal(value)} for name, value in variables.items()]


def resources(
    placement: PodPlacement,
    *,
    gpus: int,
    cpus: int | None = None,
    memory: str | None = None,
    efa_devices: int = 0,
    huge_pages: str | None = None,
) -> Values:
    """Requests equal to limits: extended resources require it, and the pod is then never evicted for using
    more than it requested."""
    amounts: dict[str, str] = {}
    if cpus:
        amounts["cpu"] = str(cpus)
    if memory:
        amounts["memory"] = quantity(memory)
    if gpus:
        amounts[placement.gpu_resource] = str(gpus)
    if efa_devices:
        amounts[EFA] = str(efa_devices)
    if huge_pages:
        amounts["hugepages-2Mi"] = quantity(huge_pages)
    return {"requests": dict(amounts), "limits": dict(amounts)} if amounts else {}


def placed(placement: PodPlacement) -> Values:
    """The fields of a pod for scheduling, image pull and service account."""
    selector = {INSTANCE_TYPE: placement.instance_type} if placement.instance_type else {}
    return _without_empty(
        {
            "nodeSelector": selector | placement.node_selector,
            "tolerations": [{"key": key, "operator": "Exists"} for key in placement.tolerations],
            "imagePullSecrets": [{"name": name} for name in placement.image_pull_secrets],
            "serviceAccountName": placement.service_account,
        }
    )


def volumes(placement: PodPlacement, mounts: Sequence[Mount], huge_pages: str | None = None) -> list[Values]:
    shared = {"medium": "Memory", "sizeLimit": quantity(placement.shared_memory)}
    found: list[Values] = [{"name": SHARED_MEMORY, "emptyDir": shared}]
    if huge_pages:
        found.append({"name": "huge-pages", "emptyDir": {"medium": "HugePages-2Mi"}})
    for number, mount in enumerate(mounts):
        if mount.claim:
            source: Values = {"persistentVolumeClaim": {"claimName": mount.claim}}
        else:
            source = {"hostPath": {"path": mount.source, "type": "Directory"}}
        found.append({"name": f"mount-{number}", **source})
    return found


def volume_mounts(mounts: Sequence[Mount], huge_pages: str | None = None) -> list[Values]:
    found: list[Values] = [{"name": SHARED_MEMORY, "mountPath": "/dev/shm"}]  # noqa: S108 - not ours
    if huge_pages:
        found.append({"name": "huge-pages", "mountPath": "/dev/hugepages"})
    for number, mount in enumerate(mounts):
        read_only = {"readOnly": True} if mount.read_only else {}
        found.append({"name": f"mount-{number}", "mountPath": mount.target, **read_only})
    return found


def too_little_memory(placement: PodPlacement, memory: str | None) -> bool:
    """Whether /dev/shm alone would take the pod's whole memory."""
    return memory is not None and memory_mib(placement.shared_memory) >= memory_mib(memory)


def _without_empty(values: Values) -> Values:
    return {name: value for name, value in values.items() if value}
