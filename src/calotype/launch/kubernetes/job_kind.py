"""What a kind of job is to the back end: how it is written, and how its state is read."""

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
    """One of Kubeflow's kinds."""

    kind: str
    group: str
    version: str
    plural: str
    container: str
    """The name of the container that runs the command."""
    manifest: Callable[[LaunchSpec, int | None], dict[str, Any]]
    """Of a spec, or of one task of its array."""
    refusals: Callable[[LaunchSpec], list[Problem]]
    """What this kind cannot do."""
    ends: Mapping[str, JobState]
    """The conditions that are ends."""
    pod_order: Callable[[Object], int]
    """Where a pod stands among those of its job."""

    def path(self, namespace: str, name: str = "") -> str:
        """Of all jobs of this kind, or of one."""
        whole = f"/apis/{self.group}/{self.version}/namespaces/{namespace}/{self.plural}"
        return f"{whole}/{name}" if name else whole


def holding(conditions: Iterable[Object]) -> dict[str, Object]:
    """The conditions that are true, by their type."""
    return {each["type"]: each for each in conditions if each.get("status") == "True"}
