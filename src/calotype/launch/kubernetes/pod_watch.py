"""The pods of a job: listed once, or watched through lost connections. Knows nothing of job kinds.

A watch starts from the version of a list. When it is lost, or the server has forgotten that version (410
Gone), the pods are listed again: what changed meanwhile is then seen at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from calotype.launch.kubernetes.client_protocol import Cluster, LostError, RefusedError
from calotype.launch.kubernetes.pod_template import INSTANCE

Pod = Mapping[str, Any]
_PAUSE_S = 0.2
_GONE = 410
_WATCH_S = 5
"""After which a server ends a watch by itself: who watches looks around now and then."""


def selector(job: str) -> str:
    return f"{INSTANCE}={job}"


def pods_of(cluster: Cluster, namespace: str, job: str) -> list[Pod]:
    return _listed(cluster, namespace, job)[0]


def watched(cluster: Cluster, namespace: str, job: str) -> Iterator[list[Pod]]:
    """The pods now, and again after every change and every few seconds; without end."""
    while True:
        pods, version = _listed(cluster, namespace, job)
        current = {pod["metadata"]["uid"]: pod for pod in pods}
        yield list(current.values())
        try:
            for kind, pod in _changes(cluster, namespace, job, version):
                uid = pod["metadata"]["uid"]
                if kind == "DELETED":
                    current.pop(uid, None)
                else:
                    current[uid] = pod
                yield list(current.values())
        except LostError:
            pass
        except RefusedError as error:
            if error.status != _GONE:
                raise
        # A server that ends every watch at once is not to be asked without end.
        time.sleep(_PAUSE_S)


def _listed(cluster: Cluster, namespace: str, job: str) -> tuple[list[Pod], str]:
    found = cluster.request(
        "GET", f"/api/v1/namespaces/{namespace}/pods", query={"labelSelector": selector(job)}
    )
    return found["items"], found["metadata"]["resourceVersion"]


def _changes(cluster: Cluster, namespace: str, job: str, version: str) -> Iterator[tuple[str, Pod]]:
    query: dict[str, str | int] = {
        "labelSelector": selector(job),
        "watch": "true",
        "resourceVersion": version,
        "timeoutSeconds": _WATCH_S,
    }
    for line in cluster.lines(f"/api/v1/namespaces/{namespace}/pods", query):
        try:
            event = json.loads(line)
        except ValueError:
            # Half an event: the connection broke inside it.
            raise LostError(f"a watch of {job} ended in the middle of an event") from None
        if event["type"] == "ERROR":
            told = event["object"]
            raise RefusedError(told.get("code", 500), told.get("reason", ""), told.get("message", ""))
        if event["type"] != "BOOKMARK":
            yield event["type"], event["object"]


def phase(pod: Pod) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def why_waiting(pod: Pod) -> str:
    """In the cluster's words; empty where it says nothing."""
    status = pod.get("status", {})
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".removesuffix(": ")
    return ""


def restarts(pod: Pod) -> int:
    found = pod.get("status", {}).get("containerStatuses", [])
    return sum(container.get("restartCount", 0) for container in found)


def exit_code(pod: Pod, container: str) -> int | None:
    """Of the container that does the work, once it has ended."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        ended = status.get("state", {}).get("terminated")
        if status["name"] == container and ended:
            return int(ended["exitCode"])
    return None
