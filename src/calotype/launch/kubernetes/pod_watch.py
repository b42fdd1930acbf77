"""Lists the pods of a job, or watches them across lost connections.

A watch starts at the resource version of a list. When it is lost, or the server has expired that version (410
Gone), the pods are listed again, which includes all changes in between.
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
"""The server ends a watch after this time, so that the watcher runs its checks regularly."""


def selector(job: str) -> str:
    return f"{INSTANCE}={job}"


def pods_of(cluster: Cluster, namespace: str, job: str) -> list[Pod]:
    return _list_pods(cluster, namespace, job)[0]


def watched(cluster: Cluster, namespace: str, job: str) -> Iterator[list[Pod]]:
    """Yield the pods now, after every change and every few seconds, endlessly."""
    while True:
        pods, version = _list_pods(cluster, namespace, job)
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
        # Limits the rate if a server ends every watch immediately.
        time.sleep(_PAUSE_S)


def _list_pods(cluster: Cluster, namespace: str, job: str) -> tuple[list[Pod], str]:
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
            # A partial event: the connection broke inside it.
            raise LostError(f"a watch of {job} ended in the middle of an event") from None
        if event["type"] == "ERROR":
            status_ = event["object"]
            raise RefusedError(
                status_.get("code", 500), status_.get("reason", ""), status_.get("message", "")
            )
        if event["type"] != "BOOKMARK":
            yield event["type"], event["object"]


def phase(pod: Pod) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def why_waiting(pod: Pod) -> str:
    """The reason in the cluster's words; empty if it gives none."""
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
    """The exit code of the job's container, once it has ended."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        ended = status.get("state", {}).get("terminated")
        if status["name"] == container and ended:
            return int(ended["exitCode"])
    return None
