"""The example of P5 nodes for eksctl agrees with what jobs ask for there, and with the table of machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # it ships no types

from calotype.launch.kubernetes import KubernetesBackend
from calotype.launch.kubernetes.instance_types import known_instances
from tests.unit.launch.kubernetes.specs import a_job

EXAMPLE = Path(__file__).parents[4] / "containers" / "eks-p5.yaml"


def test_a_job_of_the_example_goes_to_its_nodes_and_uses_all_of_them() -> None:
    cluster = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    (group,) = [each for each in cluster["managedNodeGroups"] if each["name"] == "p5"]
    machine = known_instances()[group["instanceType"]]
    assert group["efaEnabled"]
    assert len(group["availabilityZones"]) == 1, "a placement group is of one zone"
    assert group["maxSize"] == 64
    asked = {
        "gpus_per_node": machine.gpus,
        "network": {"efa_devices": machine.efa_devices},
        "kubernetes": {"instance_type": group["instanceType"], "node_selector": group["labels"]},
    }
    pod = _pod(yaml.safe_load(KubernetesBackend().render(a_job(**asked)).files["job.yaml"]))
    tolerated = {each["key"] for each in pod["tolerations"]}
    assert {taint["key"] for taint in group["taints"]} <= tolerated
    assert pod["nodeSelector"]["workload"] == "training"


def _pod(job: dict[str, Any]) -> dict[str, Any]:
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod: dict[str, Any] = node["template"]["spec"]["template"]["spec"]
    return pod
