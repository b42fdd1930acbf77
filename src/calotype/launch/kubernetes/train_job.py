"""Renders a job as Kubeflow Trainer's TrainJob (v2). Works offline.

The cluster's training runtime provides the pod template; `runtimePatches` holds the job's changes to it, with
a name for the owner of each patch.
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

NODE = "node"
"""The runtime's name of its training job and of the container in it."""
MANAGER = "calotype/launch"
# The runtime sets this in every pod.
_HOST = "$(PET_MASTER_ADDR)"


def _manifest(spec: LaunchSpec, task: int | None) -> dict[str, Any]:
    part, pod_labels = spec.kubernetes, labels(spec.name, task)
    trainer = {
        "image": spec.image,
        "command": container_command(spec, host=_HOST, task=task),
        "env": container_environment(spec),
        "numNodes": spec.nodes,
        "numProcPerNode": spec.processes_on_a_node,
    }
    requested = container_resources(spec)
    pod = {
        **placed(part),
        "terminationGracePeriodSeconds": spec.grace_s,
        "containers": [{"name": NODE, "volumeMounts": volume_mounts(spec.mounts, part.huge_pages)}],
        "volumes": volumes(part, spec.mounts, part.huge_pages),
    }
    template = {"metadata": {"labels": pod_labels}, "spec": pod}
    replicated = [{"name": NODE, "template": {"spec": {"template": template}}}]
    patch = {
        "manager": MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}},
    }
    return {
        "apiVersion": f"{TRAIN_JOB.group}/{TRAIN_JOB.version}",
        "kind": TRAIN_JOB.kind,
        "metadata": {"name": object_name(spec, task), "namespace": part.namespace, "labels": pod_labels},
        "spec": {
            "runtimeRef": {"name": part.runtime},
            **({"activeDeadlineSeconds": spec.time_limit_s} if spec.time_limit_s else {}),
            "trainer": trainer | ({"resourcesPerNode": requested} if requested else {}),
            "runtimePatches": [patch],
        },
    }


def _refusals(spec: LaunchSpec) -> list[Problem]:
    if spec.min_nodes is None or spec.min_nodes == spec.nodes:
        return []
    rule = f"a TrainJob keeps its {spec.nodes} nodes; leave it out, or use kubernetes.kind=PyTorchJob"
    return [Problem("min_nodes", rule, spec.min_nodes)]


def _pod_order(pod: Object) -> int:
    return int(pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-completion-index", 0))


TRAIN_JOB = JobKind(
    kind="TrainJob",
    group="trainer.kubeflow.org",
    version="v1alpha1",
    plural="trainjobs",
    container=NODE,
    manifest=_manifest,
    refusals=_refusals,
    ends={"Complete": JobState.COMPLETED, "Failed": JobState.FAILED},
    pod_order=_pod_order,
)
