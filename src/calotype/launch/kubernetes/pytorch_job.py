"""Renders a job as the training operator's PyTorchJob (v1). Works offline.

The first node is the master, the others are workers. An elastic job has only workers, and the first of them
hosts the rendezvous.
"""

from __future__ import annotations

from typing import Any

from calotype.core.errors import Problem
from calotype.launch.backend import JobState
from calotype.launch.kubernetes.container import (
    container_command,
    container_environment,
    container_resources,
    object_name,
)
from calotype.launch.kubernetes.job_kind import JobKind, Object
from calotype.launch.kubernetes.pod_template import labels, placed, volume_mounts, volumes
from calotype.spec.launch import LaunchSpec

CONTAINER = "pytorch"
"""The operator finds the container by this name."""
# The operator sets this in every pod.
_MASTER = "$(MASTER_ADDR)"


def _manifest(spec: LaunchSpec, task: int | None) -> dict[str, Any]:
    part, name = spec.kubernetes, object_name(spec, task)
    run = {
        # Logs of an ended job stay readable.
        "cleanPodPolicy": "Running",
        **({"activeDeadlineSeconds": spec.time_limit_s} if spec.time_limit_s else {}),
        # Pod restarts, beyond torchrun's own: evictions and lost nodes.
        "backoffLimit": spec.max_restarts + (10 if spec.requeue else 0),
    }
    if _elastic(spec):
        template = _template(spec, f"{name}-worker-0", task)
        elastic = {
            "elasticPolicy": {
                "rdzvBackend": "c10d",
                "minReplicas": spec.min_nodes,
                "maxReplicas": spec.nodes,
                "nProcPerNode": spec.processes_on_a_node,
                "maxRestarts": spec.max_restarts,
            }
        }
        replicas = {"Worker": _replicas(spec, spec.nodes, template)}
    else:
        template, elastic = _template(spec, _MASTER, task), {}
        replicas = {"Master": _replicas(spec, 1, template)}
        if spec.nodes > 1:
            replicas["Worker"] = _replicas(spec, spec.nodes - 1, template)
    return {
        "apiVersion": f"{PYTORCH_JOB.group}/{PYTORCH_JOB.version}",
        "kind": PYTORCH_JOB.kind,
        "metadata": {"name": name, "namespace": part.namespace, "labels": labels(spec.name, task)},
        "spec": {
            "nprocPerNode": str(spec.processes_on_a_node),
            "runPolicy": run,
            **elastic,
            "pytorchReplicaSpecs": replicas,
        },
    }


def _elastic(spec: LaunchSpec) -> bool:
    return spec.min_nodes is not None and spec.min_nodes < spec.nodes


def _replicas(spec: LaunchSpec, count: int, template: dict[str, Any]) -> dict[str, Any]:
    policy = "OnFailure" if spec.requeue else "Never"
    return {"replicas": count, "restartPolicy": policy, "template": template}


def _template(spec: LaunchSpec, host: str, task: int | None) -> dict[str, Any]:
    part = spec.kubernetes
    requested = container_resources(spec)
    container = {
        "name": CONTAINER,
        "image": spec.image,
        "command": container_command(spec, host=host, task=task),
        "env": container_environment(spec),
        **({"resources": requested} if requested else {}),
        "volumeMounts": volume_mounts(spec.mounts, part.huge_pages),
    }
    pod = {
        **placed(part),
        "terminationGracePeriodSeconds": spec.grace_s,
        "containers": [container],
        "volumes": volumes(part, spec.mounts, part.huge_pages),
    }
    return {"metadata": {"labels": labels(spec.name, task)}, "spec": pod}


def _refusals(_spec: LaunchSpec) -> list[Problem]:
    return []


def _pod_order(pod: Object) -> int:
    marks = pod["metadata"].get("labels", {})
    is_worker = marks.get("training.kubeflow.org/replica-type") == "worker"
    return int(marks.get("training.kubeflow.org/replica-index", 0)) + is_worker


PYTORCH_JOB = JobKind(
    kind="PyTorchJob",
    group="kubeflow.org",
    version="v1",
    plural="pytorchjobs",
    container=CONTAINER,
    manifest=_manifest,
    refusals=_refusals,
    ends={"Succeeded": JobState.COMPLETED, "Failed": JobState.FAILED},
    pod_order=_pod_order,
)
