"""Spec of a server on a cluster: models, replicas, resources and network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from calotype.core.errors import Problem, RequestError
from calotype.spec.launch_sections import (
    MAX_GPUS_IN_A_NODE,
    Count,
    Image,
    JobName,
    Label,
    LaunchSection,
    Line,
    Memory,
    MountText,
    PodPlacement,
    VariableName,
    Word,
    memory_mib,
)
from calotype.spec.recipe import with_tuples
from calotype.spec.validation_errors import problems_of

Replicas = Annotated[int, Field(ge=1, le=1000)]


class ServingSpec(LaunchSection):
    """A server and its replicas."""

    name: JobName = "calotype"
    image: Image
    models: Annotated[tuple[Line, ...], Field(min_length=1)] = ("emoji",)
    """Models as for `calotype serve`; requests without a model use the first."""
    options: tuple[Line, ...] = ()
    """Further options of `calotype serve`: `[--preset, fast, --precision, fp16]`."""
    replicas: Replicas = 1
    max_replicas: Replicas | None = None
    """Maximum when autoscaling on queued jobs. Default: no autoscaling."""
    waiting_jobs: Count = 4
    """Average queued jobs per replica above which replicas are added."""
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS_IN_A_NODE)] = 1
    """GPUs or MIG slices per replica, one worker each."""
    cpus: Count = 4
    memory: Memory = "32G"
    mounts: tuple[MountText, ...] = ()
    """For example `pvc:models:/var/lib/calotype/models:ro`."""
    environment: dict[VariableName, Line] = Field(default={})
    storage: Memory | None = None
    """Size of a volume per replica that keeps queue and images; without one they are lost with the pod."""
    storage_class: Word | None = None
    keys_secret: Label = "calotype-keys"  # noqa: S105 - its name
    """Secret whose keys.json has the API keys, as `calotype keys create` writes it."""
    hosts: tuple[Word, ...] = ()
    """Host names of an ingress, besides those of the service."""
    metrics_secret: Label | None = None
    """Secret whose `token` is an API key, with which the Prometheus operator reads the metrics."""
    drain_s: Annotated[int, Field(ge=1, le=3600)] = 120
    """Seconds for running jobs to finish when a replica stops."""
    kubernetes: PodPlacement = PodPlacement()

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Build from plain values; raises RequestError listing every problem."""
        try:
            return cls.model_validate(with_tuples(values))
        except ValidationError as error:
            general = [
                Problem("", line)
                for details in error.errors()
                if not details["loc"]
                for line in str(details["ctx"]["error"]).splitlines()
            ]
            raise RequestError([*problems_of(cls, error), *general]) from None

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        shared = self.kubernetes.shared_memory
        wrong = [
            (
                "max_replicas",
                self.max_replicas is not None and self.max_replicas < self.replicas,
                f"{self.max_replicas} is less than replicas, {self.replicas}; raise it",
            ),
            (
                "storage_class",
                self.storage_class is not None and self.storage is None,
                f"{self.storage_class} configures a volume; set storage too",
            ),
            (
                "kubernetes.shared_memory",
                memory_mib(shared) >= memory_mib(self.memory),
                f"{shared} of /dev/shm count as memory, of which there is {self.memory} in all; lower it",
            ),
        ]
        found = [f"{name}: {rule}" for name, is_wrong, rule in wrong if is_wrong]
        if found:
            raise ValueError("\n".join(found))
        return self
