"""A kind of Kubernetes job: how its manifest is written, and how its state is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calotype.core.errors import Problem
from calotype.launch.backend import JobState
from calotype.spec.launch import LaunchSpec

Object = Mapping[str, Any]


@dataclass(frozen=True)
class JobKind:
    """One of Kubeflow's job kinds."""

    kind: str
    group: str
    version: str
    plural: str
    container: str
    """The name of the container that runs the command."""
    manifest: Callable[[LaunchSpec, int | None], dict[str, Any]]
    """The manifest of a spec, or of one task of its array."""
    refusals: Callable[[LaunchSpec], list[Problem]]
    """Settings that this kind does not support."""
    ends: Mapping[str, JobState]
    """Conditions that end a job → its final state."""
    pod_order: Callable[[Object], int]
    """Sort key of a pod among those of its job."""

    def path(self, namespace: str, name: str = "") -> str:
        """The API path of all jobs of this kind, or of one."""
        collection = f"/apis/{self.group}/{self.version}/namespaces/{namespace}/{self.plural}"
        return f"{collection}/{name}" if name else collection


def holding(conditions: Iterable[Object]) -> dict[str, Object]:
    """The conditions that are true, by their type."""
    return {each["type"]: each for each in conditions if each.get("status") == "True"}
