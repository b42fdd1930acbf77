"""Rendered jobs: they pass their readers' schemas and say what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from calotype.core.errors import RequestError
from calotype.launch.kubernetes import KubernetesBackend
from calotype.launch.kubernetes.instance_types import known_instances
from calotype.mig.profiles import table
from calotype.spec.launch import LaunchSpec
from tests.unit.launch.kubernetes.schemas import faults
from tests.unit.launch.kubernetes.specs import a_job

FULL: dict[str, Any] = {
    "mounts": ["pvc:data:/data", "/scratch:/scratch:ro"],
    "environment": {"HF_HOME": "/data/hub", "COST": "$(echo 5)"},
    "directory": "/data",
    "memory_per_node": "512G",
    "cpus_per_node": 96,
    "time_limit": "12h",
    "max_restarts": 3,
    "grace_s": 90,
}
EVERYWHERE: dict[str, Any] = {
    "huge_pages": "5G",
    "namespace": "research",
    "image_pull_secrets": ["ecr"],
    "service_account": "trainer",
    "node_selector": {"karpenter.sh/nodepool": "gpu"},
    "tolerations": ["nvidia.com/gpu", "team"],
}


def rendered(spec: LaunchSpec) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(KubernetesBackend().render(spec).files["job.yaml"]))


def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    if job["kind"] == "PyTorchJob":
        return [each["template"]["spec"] for each in job["spec"]["pytorchReplicaSpecs"].values()]
    patch = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    pod = patch["template"]["spec"]["template"]["spec"]
    trainer = job["spec"]["trainer"]
    return [
        {**pod, "containers": [{**pod["containers"][0], **trainer, "resources": trainer["resourcesPerNode"]}]}
    ]


@pytest.mark.parametrize("kind", ["TrainJob", "PyTorchJob"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        FULL | {"kubernetes": EVERYWHERE},
        {"array": 3, "command": ["bench", "sweep", "{task}"]},
        {"nodes": 1},
    ],
    ids=["plain", "full", "array", "one node"],
)
def test_every_rendered_job_passes_its_schema(kind: str, changes: dict[str, Any]) -> None:
    changes = {**changes, "kubernetes": {**changes.get("kubernetes", {}), "kind": kind}}
    for job in rendered(a_job(**changes)):
        assert faults(job) == []


def test_an_elastic_job_passes_its_schema() -> None:
    (job,) = rendered(a_job(min_nodes=1, kubernetes={"kind": "PyTorchJob"}))
    assert faults(job) == []
    assert job["spec"]["elasticPolicy"]["minReplicas"] == 1
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Worker"]
    assert "--rdzv-endpoint=sd2-worker-0:29500" in pods(job)[0]["containers"][0]["command"]


def test_schemas_notice_what_they_do_not_know() -> None:
    (job,) = rendered(a_job())
    job["spec"]["trainer"]["numNode"] = 3
    assert faults(job) == ["/spec/trainer/numNode is not known"]
    (job,) = rendered(a_job(kubernetes={"kind": "PyTorchJob"}))
    job["spec"]["runPolicy"]["cleanPods"] = "All"
    assert faults(job) == ["/spec/runPolicy/cleanPods is not known"]


@pytest.mark.parametrize("kind", ["TrainJob", "PyTorchJob"])
def test_pods_get_what_the_spec_says(kind: str) -> None:
    (job,) = rendered(a_job(**FULL, kubernetes={**EVERYWHERE, "kind": kind}))
    assert job["metadata"]["namespace"] == "research"
    for pod in pods(job):
        container = pod["containers"][0]
        amounts = {
            "cpu": "96",
            "memory": "512Gi",
            "nvidia.com/gpu": "8",
            "vpc.amazonaws.com/efa": "32",
            "hugepages-2Mi": "5Gi",
        }
        assert container["resources"] == {"requests": amounts, "limits": amounts}
        assert pod["nodeSelector"] == {
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "karpenter.sh/nodepool": "gpu",
        }
        assert [each["key"] for each in pod["tolerations"]] == ["nvidia.com/gpu", "team"]
        assert (pod["imagePullSecrets"], pod["serviceAccountName"]) == ([{"name": "ecr"}], "trainer")
        assert pod["terminationGracePeriodSeconds"] == 90
        sources = {each["name"]: each for each in pod["volumes"]}
        seen = {each["mountPath"]: sources[each["name"]] for each in container["volumeMounts"]}
        assert seen["/dev/shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
        assert seen["/data"]["persistentVolumeClaim"] == {"claimName": "data"}
        assert seen["/scratch"]["hostPath"]["path"] == "/scratch"
        variables = {each["name"]: each["value"] for each in container["env"]}
        assert variables["FI_PROVIDER"] == "efa"
        assert variables["NCCL_SOCKET_IFNAME"] == "eth0"
        # Kubernetes would take the text for a variable's name.
        assert variables["COST"] == "$$(echo 5)"
        command = container["command"]
        assert command[:3] == ["env", "--chdir=/data", "python3"]
        assert command[-5:] == ["-m", "calotype", "train", "sd2-base", "trainer.nodes=2"]
        assert {"--nnodes=2", "--nproc-per-node=8", "--max-restarts=3"} < set(command)


def test_tasks_of_an_array_are_jobs_of_their_own() -> None:
    jobs = rendered(a_job(array=3, command=["bench", "sweep", "--part={task}/{tasks}"]))
    assert [job["metadata"]["name"] for job in jobs] == ["sd2-0", "sd2-1", "sd2-2"]
    assert [job["spec"]["trainer"]["command"][-1] for job in jobs] == [
        "--part=0/3",
        "--part=1/3",
        "--part=2/3",
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"image": None}, "image: pods need an image"),
        ({"image": "/images/train.sqsh"}, "image: /images/train.sqsh is a file"),
        ({"setup": ["module load cuda"]}, "setup: there is no shell outside"),
        (
            {"gpus_per_node": 16},
            "gpus_per_node: 16 × nvidia.com/gpu are more than a p5.48xlarge has; ask for at most 8",
        ),
        ({"network": {"efa_devices": 64}}, "efa_devices: 64 adapters are more than a p5.48xlarge has"),
        (
            {"kubernetes": {"gpu_resource": "nvidia.com/mig-2g.10gb"}},
            "gpu_resource: p5.48xlarge has 8 × H100-80GB-SXM5, which offer no nvidia.com/mig-2g.10gb",
        ),
        ({"min_nodes": 1}, "min_nodes: a TrainJob keeps its 2 nodes"),
        ({"array": 4, "array_at_once": 2}, "array_at_once: Kubernetes starts all 4 tasks"),
        ({"memory_per_node": "8G"}, "kubernetes.shared_memory: 16G of /dev/shm count as memory"),
        ({"kubernetes": {"huge_pages": "5G"}}, "kubernetes.huge_pages: 5G need CPUs or memory"),
        ({"command": ["train", "sd2-base", "out={folder}"]}, "mounts: the command writes to launches/sd2"),
    ],
)
def test_what_no_cluster_could_do_is_refused_with_the_reason(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as caught:
        KubernetesBackend().render(a_job(**changes))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"nodes": 0}, "nodes"),
        ({"name": "Sd2_base"}, "is no job name"),
        ({"kubernetes": {"namespace": "Team A"}}, "kubernetes.namespace"),
        (
            {"kubernetes": {"gpu_resource": "mig-2g.20gb"}},
            "is no resource; write for instance nvidia.com/gpu",
        ),
        ({"kubernetes": {"node_selector": {"a b": "c"}}}, "is no label"),
        ({"kubernetes": {"kind": "MPIJob"}}, "kubernetes.kind"),
        ({"time_limit": "soon"}, "is no time"),
    ],
)
def test_wrong_values_are_refused_with_the_reason(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        a_job(**changes)


def test_slices_that_a_gpu_has_are_rendered() -> None:
    part = {"gpu_resource": "nvidia.com/mig-2g.20gb"}
    (job,) = rendered(a_job(gpus_per_node=16, network={"efa_devices": 0}, kubernetes=part))
    assert job["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"nvidia.com/mig-2g.20gb": "16"}
    with pytest.raises(RequestError, match="at most 24"):
        KubernetesBackend().render(
            a_job(gpus_per_node=16, kubernetes=part).model_copy(update={"gpus_per_node": 25})
        )


def test_the_table_of_machines_agrees_with_the_table_of_slices() -> None:
    models = table()
    for instance in known_instances().values():
        profiles = {each.name: each.max_instances for each in models[instance.gpu].profiles}
        assert instance.slices == profiles, instance.name
