"""What is served on a cluster: models, replicas, what each uses and how they are reached.

Frozen and strict like a launch. Knows nothing of how anything is started, nor of any back end's files.
"""

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
    """As `calotype serve` takes them; the first is meant where a request names none."""
    options: tuple[Line, ...] = ()
    """More of `calotype serve`: `[--preset, fast, --precision, fp16]`."""
    replicas: Replicas = 1
    max_replicas: Replicas | None = None
    """Grow to so many while jobs wait; never if not said."""
    waiting_jobs: Count = 4
    """How many a replica may have waiting, on average, before there are more replicas."""
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS_IN_A_NODE)] = 1
    """Of each replica, or slices of a GPU; a worker each."""
    cpus: Count = 4
    memory: Memory = "32G"
    mounts: tuple[MountText, ...] = ()
    """For instance `pvc:models:/var/lib/calotype/models:ro`."""
    environment: dict[VariableName, Line] = Field(default={})
    storage: Memory | None = None
    """A volume for each replica, on which its queue and pictures outlive it; if not said they do not."""
    storage_class: Word | None = None
    keys_secret: Label = "calotype-keys"  # noqa: S105 - its name
    """A secret whose keys.json has the API keys, as `calotype keys create` writes it."""
    hosts: tuple[Word, ...] = ()
    """Names under which an ingress sends requests on, besides those of the service."""
    metrics_secret: Label | None = None
    """A secret whose `token` is an API key: Prometheus's operator is told to read the metrics with it."""
    drain_s: Annotated[int, Field(ge=1, le=3600)] = 120
    """What running jobs have to end in when a replica stops."""
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
                f"{self.storage_class} says something about a volume; set storage too",
            ),
            (
                "kubernetes.shared_memory",
                memory_mib(shared) >= memory_mib(self.memory),
                f"{shared} of /dev/shm count as memory, and there are {self.memory} in all; lower it",
            ),
        ]
        found = [f"{name}: {rule}" for name, is_wrong, rule in wrong if is_wrong]
        if found:
            raise ValueError("\n".join(found))
        return self
