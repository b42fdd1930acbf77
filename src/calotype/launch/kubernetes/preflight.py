"""What a cluster would refuse, said before anything is handed in. Knows nothing of how jobs are watched."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.launch.backend import LaunchError
from calotype.launch.kubernetes.client_protocol import Cluster, RefusedError
from calotype.launch.kubernetes.instance_types import check_instance, known_instances
from calotype.launch.kubernetes.job_kind import JobKind
from calotype.launch.kubernetes.pod_template import EFA, placed, too_little_memory
from calotype.spec.launch import FOLDER, LaunchSpec

_log = logging.getLogger(__name__)
_CONFLICT, _FORBIDDEN, _NOT_FOUND = 409, 403, 404
_WRONG = (400, 413, 422)


def offline_problems(spec: LaunchSpec, kind: JobKind) -> list[Problem]:
    """What no cluster could do."""
    part = spec.kubernetes
    problems = kind.refusals(spec) + check_instance(
        part, spec.gpus_per_node, spec.network.efa_devices, "gpus_per_node"
    )
    wrong = [
        (
            "image",
            spec.image is None,
            "pods run in an image; say which, for instance registry/calotype-train:1",
        ),
        (
            "image",
            bool(spec.image and spec.image.startswith("/")),
            f"{spec.image} is a file; Kubernetes pulls images from a registry, say REGISTRY/NAME:TAG",
        ),
        (
            "setup",
            bool(spec.setup),
            "there is no shell outside of the container; put it into the image, or into environment",
        ),
        (
            "array_at_once",
            spec.array_at_once is not None,
            f"Kubernetes starts all {spec.array} tasks as there is room; leave it out, or set a quota",
        ),
        (
            "kubernetes.shared_memory",
            too_little_memory(part, spec.memory_per_node),
            f"{part.shared_memory} of /dev/shm count as memory, and there are {spec.memory_per_node} in all; "
            "lower it, or raise memory_per_node",
        ),
        (
            "kubernetes.huge_pages",
            part.huge_pages is not None and not (spec.cpus_per_node or spec.memory_per_node),
            f"{part.huge_pages} need CPUs or memory beside them; set cpus_per_node or memory_per_node",
        ),
        (
            "mounts",
            any(FOLDER in word for word in spec.command) and not _seen_inside(spec),
            f"the command writes to {spec.folder}, which pods do not see; mount a volume there, for instance "
            "pvc:CLAIM:/data, and set work_folder below it",
        ),
    ]
    return problems + [Problem(field, rule) for field, is_wrong, rule in wrong if is_wrong]


def _seen_inside(spec: LaunchSpec) -> bool:
    return any(f"{spec.folder}/".startswith(f"{mount.target.rstrip('/')}/") for mount in spec.mounts)


def online_problems(
    cluster: Cluster, spec: LaunchSpec, kind: JobKind, manifest: Mapping[str, Any]
) -> list[Problem]:
    """What this cluster would refuse: by its nodes, and by its own word in a trial that leaves nothing."""
    problems = _node_problems(cluster, spec)
    namespace = spec.kubernetes.namespace
    try:
        cluster.request(
            "POST", kind.path(namespace), query={"dryRun": "All", "fieldValidation": "Strict"}, body=manifest
        )
    except RefusedError as error:
        problems += _trial_problems(error, kind, namespace)
    return problems


def _trial_problems(error: RefusedError, kind: JobKind, namespace: str) -> list[Problem]:
    if error.status == _CONFLICT:
        # The name of the trial; what is handed in gets one of its own.
        return []
    if error.status == _FORBIDDEN and "quota" in error.message:
        rule = f"its quota has no room: {error.message}; ask for less, or wait"
        return [Problem("kubernetes.namespace", rule, namespace)]
    if error.status == _NOT_FOUND:
        if "namespaces" in error.message:
            rule = f"there is no namespace {namespace!r} on this cluster; create it, or use another"
            return [Problem("kubernetes.namespace", rule, namespace)]
        rule = f"this cluster does not know {kind.kind} ({kind.group}/{kind.version}); install Kubeflow's "
        other = "PyTorchJob" if kind.kind == "TrainJob" else "TrainJob"
        return [Problem("kubernetes.kind", f"{rule}operator for it, or use {other}", kind.kind)]
    if error.status in _WRONG:
        return [Problem("kubernetes", error.message)]
    raise error


def _node_problems(cluster: Cluster, spec: LaunchSpec) -> list[Problem]:
    wanted = {"gpus_per_node": (spec.kubernetes.gpu_resource, spec.gpus_per_node)}
    wanted["network.efa_devices"] = (EFA, spec.network.efa_devices)
    if not any(number for _, number in wanted.values()):
        return []
    fitting = _offers(cluster, spec)
    if not fitting:
        # Node groups that grow from nothing have no node to show.
        _log.info("no node can be looked at: whether they have the GPUs is left to the scheduler")
        return []
    problems = []
    for field, (resource, number) in wanted.items():
        most = max(int(each.get(resource, 0)) for each in fitting)
        if number and not most:
            known = sorted(
                {name for each in fitting for name, has in each.items() if "/" in name and has != "0"}
            )
            rule = f"no node offers {resource}; {did_you_mean(resource, known)}"
            problems.append(Problem(field, rule, number))
        elif number > most:
            rule = f"{number} × {resource} are more than any node has; ask for at most {most}"
            problems.append(Problem(field, rule, number))
    return problems


def _offers(cluster: Cluster, spec: LaunchSpec) -> list[Mapping[str, str]]:
    """What the nodes offer that pods may go to; nothing where they may not be listed."""
    try:
        nodes = cluster.request("GET", "/api/v1/nodes")["items"]
    except RefusedError as error:
        if error.status != _FORBIDDEN:
            raise
        return []
    labels = placed(spec.kubernetes).get("nodeSelector", {})
    return [
        node.get("status", {}).get("allocatable", {})
        for node in nodes
        if labels.items() <= node["metadata"].get("labels", {}).items()
    ]


def most_gpus(cluster: Cluster, spec: LaunchSpec) -> int:
    """Of one node that pods may go to, as the cluster has it or as nodes of that type have."""
    part = spec.kubernetes
    offers = _offers(cluster, spec)
    if not offers and part.instance_type in known_instances():
        return known_instances()[part.instance_type].offers().get(part.gpu_resource, 0)
    if not offers:
        rule = "no node can be looked at to see how many it has; say how many"
        raise RequestError([Problem("gpus_per_node", rule)])
    return max(int(each.get(part.gpu_resource, 0)) for each in offers)


def refused(error: RefusedError, name: str, namespace: str) -> LaunchError:
    """Why a job was not taken after all."""
    if error.status == _CONFLICT:
        rule = f"{namespace} has a job {name!r} of somebody else already; use another name"
        return LaunchError(rule)
    return error
