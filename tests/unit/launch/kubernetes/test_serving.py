"""Rendered servers: they pass Kubernetes's schemas and say what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types
from typer.testing import CliRunner

from calotype.cli.main import app
from calotype.core.errors import RequestError
from calotype.launch.kubernetes.serving import render_serving
from calotype.serve.http.middleware.security import OPEN_PATHS
from calotype.serve.metrics import Metrics
from calotype.spec.serving_manifest import ServingSpec
from tests.unit.launch.kubernetes.schemas import faults

SLICES = {"gpu_resource": "nvidia.com/mig-2g.20gb", "instance_type": "p5.48xlarge", "namespace": "pictures"}
FULL: dict[str, Any] = {
    "models": ["sdxl", "emoji"],
    "options": ["--preset", "fast"],
    "replicas": 2,
    "max_replicas": 6,
    "gpus": 2,
    "mounts": ["pvc:models:/var/lib/calotype/models:ro"],
    "environment": {"HF_HOME": "/var/lib/calotype/hub"},
    "hosts": ["pictures.example"],
    "metrics_secret": "scraper",
    "kubernetes": SLICES,
}


def rendered(**changes: Any) -> dict[str, dict[str, Any]]:
    """The objects, by their kind."""
    spec = ServingSpec.parse({"image": "registry.example/calotype-serve:1", **changes})
    objects = list(yaml.safe_load_all(render_serving(spec).files["serving.yaml"]))
    return {each["kind"]: each for each in objects}


@pytest.mark.parametrize(
    "changes",
    [{}, FULL, {**FULL, "storage": "50G", "storage_class": "gp3"}, {"gpus": 0, "max_replicas": 3}],
    ids=["plain", "full", "storage", "without GPU"],
)
def test_every_object_passes_its_schema(changes: dict[str, Any]) -> None:
    for kind, each in rendered(**changes).items():
        # Prometheus's operator publishes no schema that could be installed.
        if kind != "ServiceMonitor":
            assert faults(each) == [], kind


def test_the_secret_is_made_where_the_server_looks_for_it() -> None:
    spec = ServingSpec.parse({"image": "a", "keys_secret": "mine", "kubernetes": {"namespace": "pictures"}})
    heading = render_serving(spec).files["serving.yaml"].partition("---")[0]
    assert "kubectl create secret generic mine --namespace=pictures --from-file=keys.json" in heading


def test_the_schema_notices_what_it_does_not_know() -> None:
    server = rendered()["Deployment"]
    server["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert "livenesProbe" in str(faults(server))


def test_a_server_on_slices_of_gpus() -> None:
    found = rendered(**FULL)
    assert sorted(found) == [
        "Deployment",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "Service",
        "ServiceMonitor",
    ]
    pod = found["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["resources"]["limits"] == {
        "cpu": "4",
        "memory": "32Gi",
        "nvidia.com/mig-2g.20gb": "2",
    }
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    assert pod["terminationGracePeriodSeconds"] > 120
    assert container["args"][:3] == ["serve", "sdxl", "emoji"]
    assert {"--device=all", "--allowed-host=calotype.pictures.svc", "--allowed-host=pictures.example"} < set(
        container["args"]
    )
    assert pod["securityContext"]["runAsNonRoot"]
    scaling = found["HorizontalPodAutoscaler"]["spec"]
    assert (scaling["minReplicas"], scaling["maxReplicas"]) == (2, 6)
    metric = scaling["metrics"][0]["pods"]["metric"]["name"]
    assert metric in {family.name for family in Metrics().registry.collect()}
    key = found["ServiceMonitor"]["spec"]["endpoints"][0]["authorization"]["credentials"]
    assert key == {"name": "scraper", "key": "token"}


def test_probes_ask_what_is_answered_without_a_key() -> None:
    container = rendered()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    asked = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert asked == OPEN_PATHS


def test_all_objects_speak_of_the_same_pods() -> None:
    found = rendered(**FULL)
    marks = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == marks
    assert found["Service"]["spec"]["selector"] == marks
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == marks
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "calotype"


def test_a_queue_that_outlives_its_replica_has_a_volume() -> None:
    found = rendered(storage="50G", storage_class="gp3")
    assert "Deployment" not in found
    claim = found["StatefulSet"]["spec"]["volumeClaimTemplates"][0]
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    mounts = found["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/var/lib/calotype"} in mounts


def test_a_server_without_gpus_grows_by_its_cpus() -> None:
    found = rendered(gpus=0, max_replicas=3)
    assert found["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["resource"]["name"] == "cpu"
    assert "--device=cpu" in found["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"gpus": 9, "kubernetes": {"instance_type": "p5.48xlarge"}},
            "gpus: 9 × nvidia.com/gpu are more than",
        ),
        (
            {"kubernetes": {**SLICES, "gpu_resource": "nvidia.com/mig-2g.20g"}},
            "offer no nvidia.com/mig-2g.20g",
        ),
        ({"replicas": 3, "max_replicas": 2}, "max_replicas: 2 is less than replicas, 3"),
        ({"storage_class": "gp3"}, "storage_class: gp3 configures a volume"),
        ({"memory": "8G"}, "16G of /dev/shm count as memory"),
        ({"name": "My_Server"}, "is no job name"),
        ({"replica": 2}, "replica: is not a known setting"),
    ],
)
def test_wrong_servers_are_refused_with_the_reason(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        rendered(**changes)


def test_the_command_takes_a_file_and_settings(tmp_path: Path) -> None:
    (tmp_path / "serving.yaml").write_text("image: registry.example/serve:1\nreplicas: 2\n")
    options = ["--file", str(tmp_path / "serving.yaml"), "--set", "gpus=0", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["launch", "render-serving", "sdxl", *options])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "out" / "serving.yaml").read_text()
    server = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
    assert server["spec"]["replicas"] == 2
    assert server["spec"]["template"]["spec"]["containers"][0]["args"][1] == "sdxl"
