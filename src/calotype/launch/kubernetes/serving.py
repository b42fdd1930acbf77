"""Renders a server as Kubernetes objects: pods behind a service, an autoscaler and a disruption budget.

Replicas with a persistent queue are a StatefulSet with a volume each, others a Deployment. Works offline.
"""

from __future__ import annotations

from typing import Any

from calotype.core.errors import RequestError
from calotype.launch.backend import Rendered
from calotype.launch.kubernetes.instance_types import check_instance
from calotype.launch.kubernetes.pod_template import (
    environment,
    labels,
    literal,
    placed,
    quantity,
    resources,
    volume_mounts,
    volumes,
)
from calotype.launch.kubernetes.yaml import as_yaml
from calotype.spec.serving_manifest import ServingSpec

FILE = "serving.yaml"
HTTP, GRPC = 8188, 8189
USER = 10001
"""The user id in the image."""
STATE, KEYS = "/var/lib/calotype", "/etc/calotype/keys"
_PRE_STOP_S = 5
"""Delay of a pod's shutdown, until the service sends it no new requests."""
_EXTRA_GRACE_S = 30


def render_serving(spec: ServingSpec) -> Rendered:
    """Render a file for `kubectl apply`; raises RequestError for settings that no node can satisfy."""
    problems = check_instance(spec.kubernetes, spec.gpus, 0, "gpus")
    if problems:
        raise RequestError(problems)
    heading = [
        f"{', '.join(spec.models)} behind the service {spec.name}. Needs only Calotype's image "
        "and a secret with API keys:",
        f"kubectl create secret generic {spec.keys_secret} --namespace={spec.kubernetes.namespace} "
        "--from-file=keys.json",
        f"kubectl apply -f {FILE}",
    ]
    notes = []
    if spec.max_replicas and spec.gpus:
        notes.append(
            "the HorizontalPodAutoscaler reads calotype_jobs_queued from the custom metrics API, which "
            "prometheus-adapter serves; see docs/kubernetes.md"
        )
    return Rendered({FILE: as_yaml(manifests(spec), heading)}, tuple(notes))


def manifests(spec: ServingSpec) -> list[dict[str, Any]]:
    """Every object, in the order of creation."""
    objects = [_service(spec), _replicas(spec), _disruption_budget(spec)]
    if spec.storage:
        objects.insert(0, _pod_names(spec))
    if spec.max_replicas:
        objects.append(_autoscaler(spec))
    if spec.metrics_secret:
        objects.append(_monitor(spec))
    return objects


def _object(
    spec: ServingSpec, api: str, kind: str, content: dict[str, Any], ending: str = ""
) -> dict[str, Any]:
    meta = {
        "name": f"{spec.name}{ending}",
        "namespace": spec.kubernetes.namespace,
        "labels": labels(spec.name),
    }
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": content}


def _service(spec: ServingSpec) -> dict[str, Any]:
    ports = [
        {"name": "http", "port": HTTP, "targetPort": "http"},
        {"name": "grpc", "port": GRPC, "targetPort": "grpc", "appProtocol": "kubernetes.io/h2c"},
    ]
    # Only the replica that accepted a job knows it, so a client stays with one replica.
    content = {"selector": labels(spec.name), "ports": ports, "sessionAffinity": "ClientIP"}
    return _object(spec, "v1", "Service", content)


def _pod_names(spec: ServingSpec) -> dict[str, Any]:
    content = {"clusterIP": "None", "selector": labels(spec.name), "ports": [{"name": "pods", "port": HTTP}]}
    return _object(spec, "v1", "Service", content, "-pods")


def _replicas(spec: ServingSpec) -> dict[str, Any]:
    pod_labels = labels(spec.name)
    content: dict[str, Any] = {
        # With an autoscaler, applying the file again must not reset the number.
        **({} if spec.max_replicas else {"replicas": spec.replicas}),
        "selector": {"matchLabels": pod_labels},
        "template": {"metadata": {"labels": pod_labels}, "spec": _pod(spec)},
    }
    if not spec.storage:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
        return _object(spec, "apps/v1", "Deployment", {**content, "strategy": strategy})
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": quantity(spec.storage)}},
        **({"storageClassName": spec.storage_class} if spec.storage_class else {}),
    }
    template = {"metadata": {"name": "state"}, "spec": claim}
    statefulset = {"podManagementPolicy": "Parallel", "serviceName": f"{spec.name}-pods"}
    return _object(
        spec, "apps/v1", "StatefulSet", {**content, **statefulset, "volumeClaimTemplates": [template]}
    )


def _pod(spec: ServingSpec) -> dict[str, Any]:
    state = [] if spec.storage else [{"name": "state", "emptyDir": {}}]
    keys = {"name": "keys", "secret": {"secretName": spec.keys_secret, "defaultMode": 0o440}}
    # Volumes belong to root unless fsGroup gives them to the image's user.
    security_context = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        **placed(spec.kubernetes),
        "automountServiceAccountToken": False,
        "securityContext": security_context,
        "terminationGracePeriodSeconds": _PRE_STOP_S + spec.drain_s + _EXTRA_GRACE_S,
        "containers": [_container(spec)],
        "volumes": [
            *state,
            keys,
            {"name": "temporary", "emptyDir": {}},
            *volumes(spec.kubernetes, spec.mounts),
        ],
    }


def _container(spec: ServingSpec) -> dict[str, Any]:
    return {
        "name": "serve",
        "image": spec.image,
        "args": [literal(word) for word in _words(spec)],
        **({"env": environment(spec.environment)} if spec.environment else {}),
        "ports": [{"name": "http", "containerPort": HTTP}, {"name": "grpc", "containerPort": GRPC}],
        "resources": resources(spec.kubernetes, gpus=spec.gpus, cpus=spec.cpus, memory=spec.memory),
        # The server answers while it loads models, but not while it imports its libraries.
        "startupProbe": {**_http_get("/healthz"), "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {
            **_http_get("/healthz"),
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {**_http_get("/readyz"), "periodSeconds": 5, "timeoutSeconds": 5},
        "lifecycle": {"preStop": {"sleep": {"seconds": _PRE_STOP_S}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "state", "mountPath": STATE},
            {"name": "keys", "mountPath": KEYS, "readOnly": True},
            {"name": "temporary", "mountPath": "/tmp"},  # noqa: S108 - the container's
            *volume_mounts(spec.mounts),
        ],
    }


def _http_get(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "http"}}


def _words(spec: ServingSpec) -> list[str]:
    name, namespace = spec.name, spec.kubernetes.namespace
    names = [name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"]
    return [
        "serve",
        *spec.models,
        f"--name={name}",
        "--host=0.0.0.0",
        f"--port={HTTP}",
        f"--grpc-port={GRPC}",
        f"--keys={KEYS}",
        f"--drain={spec.drain_s}",
        *(["--device=all"] if spec.gpus else ["--device=cpu"]),
        *(f"--allowed-host={host}" for host in [*names, *spec.hosts]),
        *spec.options,
    ]


def _disruption_budget(spec: ServingSpec) -> dict[str, Any]:
    content = {"maxUnavailable": 1, "selector": {"matchLabels": labels(spec.name)}}
    return _object(spec, "policy/v1", "PodDisruptionBudget", content)


def _autoscaler(spec: ServingSpec) -> dict[str, Any]:
    if spec.gpus:
        # CPU load says nothing about GPU work; the number of queued jobs does.
        target = {"type": "AverageValue", "averageValue": str(spec.waiting_jobs)}
        metric = {"type": "Pods", "pods": {"metric": {"name": "calotype_jobs_queued"}, "target": target}}
    else:
        target = {"type": "Utilization", "averageUtilization": 80}  # type: ignore[dict-item]
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    kind = "StatefulSet" if spec.storage else "Deployment"
    content = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": spec.name},
        "minReplicas": spec.replicas,
        "maxReplicas": spec.max_replicas,
        "metrics": [metric],
        # Loading a model takes longer than a short idle period.
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    }
    return _object(spec, "autoscaling/v2", "HorizontalPodAutoscaler", content)


def _monitor(spec: ServingSpec) -> dict[str, Any]:
    key = {"type": "Bearer", "credentials": {"name": spec.metrics_secret, "key": "token"}}
    content = {
        "selector": {"matchLabels": labels(spec.name)},
        "endpoints": [{"port": "http", "path": "/metrics", "authorization": key}],
    }
    return _object(spec, "monitoring.coreos.com/v1", "ServiceMonitor", content)
