"""Finds what a cluster would refuse, before anything is submitted."""

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
_INVALID = (400, 413, 422)


def offline_problems(spec: LaunchSpec, kind: JobKind) -> list[Problem]:
    """Settings that no cluster can satisfy."""
    part = spec.kubernetes
    problems = kind.refusals(spec) + check_instance(
        part, spec.gpus_per_node, spec.network.efa_devices, "gpus_per_node"
    )
    wrong = [
        (
            "image",
            spec.image is None,
            "pods need an image; set one, for instance registry/calotype-train:1",
        ),
        (
            "image",
            bool(spec.image and spec.image.startswith("/")),
            f"{spec.image} is a file; Kubernetes pulls images from a registry, use REGISTRY/NAME:TAG",
        ),
        (
            "setup",
            bool(spec.setup),
            "there is no shell outside the container; put it into the image, or into environment",
        ),
        (
            "array_at_once",
            spec.array_at_once is not None,
            f"Kubernetes starts all {spec.array} tasks as resources allow; leave it out, or set a quota",
        ),
        (
            "kubernetes.shared_memory",
            too_little_memory(part, spec.memory_per_node),
            f"{part.shared_memory} of /dev/shm count as memory, and the limit is {spec.memory_per_node}; "
            "lower it, or raise memory_per_node",
        ),
        (
            "kubernetes.huge_pages",
            part.huge_pages is not None and not (spec.cpus_per_node or spec.memory_per_node),
            f"{part.huge_pages} need CPUs or memory beside them; set cpus_per_node or memory_per_node",
        ),
        (
            "mounts",
            any(FOLDER in word for word in spec.command) and not _is_mounted(spec),
            f"the command writes to {spec.folder}, which pods do not mount; mount a volume there, such as "
            "pvc:CLAIM:/data, and set work_folder below it",
        ),
    ]
    return problems + [Problem(field, rule) for field, is_wrong, rule in wrong if is_wrong]


def _is_mounted(spec: LaunchSpec) -> bool:
    return any(f"{spec.folder}/".startswith(f"{mount.target.rstrip('/')}/") for mount in spec.mounts)


def online_problems(
    cluster: Cluster, spec: LaunchSpec, kind: JobKind, manifest: Mapping[str, Any]
) -> list[Problem]:
    """Problems of this cluster: from its nodes, and from a server-side dry run."""
    problems = _node_problems(cluster, spec)
    namespace = spec.kubernetes.namespace
    try:
        cluster.request(
            "POST", kind.path(namespace), query={"dryRun": "All", "fieldValidation": "Strict"}, body=manifest
        )
    except RefusedError as error:
        problems += _dry_run_problems(error, kind, namespace)
    return problems


def _dry_run_problems(error: RefusedError, kind: JobKind, namespace: str) -> list[Problem]:
    if error.status == _CONFLICT:
        # The name of the dry run; the submitted job gets its own name.
        return []
    if error.status == _FORBIDDEN and "quota" in error.message:
        rule = f"its quota is exhausted: {error.message}; request less, or wait"
        return [Problem("kubernetes.namespace", rule, namespace)]
    if error.status == _NOT_FOUND:
        if "namespaces" in error.message:
            rule = f"there is no namespace {namespace!r} on this cluster; create it, or use another"
            return [Problem("kubernetes.namespace", rule, namespace)]
        rule = f"this cluster does not know {kind.kind} ({kind.group}/{kind.version}); install Kubeflow's "
        other = "PyTorchJob" if kind.kind == "TrainJob" else "TrainJob"
        return [Problem("kubernetes.kind", f"{rule}operator for it, or use {other}", kind.kind)]
    if error.status in _INVALID:
        return [Problem("kubernetes", error.message)]
    raise error


def _node_problems(cluster: Cluster, spec: LaunchSpec) -> list[Problem]:
    requested = {"gpus_per_node": (spec.kubernetes.gpu_resource, spec.gpus_per_node)}
    requested["network.efa_devices"] = (EFA, spec.network.efa_devices)
    if not any(number for _, number in requested.values()):
        return []
    fitting = _offers(cluster, spec)
    if not fitting:
        # Node groups that scale from zero have no nodes to inspect.
        _log.info("no node can be inspected: the scheduler decides whether there are enough GPUs")
        return []
    problems = []
    for field, (resource, number) in requested.items():
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
    """Allocatable resources of the nodes that pods may run on; empty if nodes may not be listed."""
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
    """The most GPUs of a node that pods may run on, from the cluster or from the instance type."""
    part = spec.kubernetes
    offers = _offers(cluster, spec)
    if not offers and part.instance_type in known_instances():
        return known_instances()[part.instance_type].offers().get(part.gpu_resource, 0)
    if not offers:
        rule = "no node can be inspected for its number of GPUs; set it"
        raise RequestError([Problem("gpus_per_node", rule)])
    return max(int(each.get(part.gpu_resource, 0)) for each in offers)


def refused(error: RefusedError, name: str, namespace: str) -> LaunchError:
    """The error of a refused submission."""
    if error.status == _CONFLICT:
        rule = f"{namespace} already has another job {name!r}; use another name"
        return LaunchError(rule)
    return error
