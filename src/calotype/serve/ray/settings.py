"""How many replicas there are in a Ray cluster, and what each takes of it. Knows nothing of Ray itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from calotype.serve.scheduler.replica_set import ReplicaCount


def _whole_above_one(number: float) -> float:
    if number > 1 and number != int(number):
        raise ValueError(f"{number:g} is neither a part of one GPU nor a whole number of them")
    return number


ReplicaResources = Annotated[float, Field(ge=0, le=1024, allow_inf_nan=False)]


class ClusterSettings(BaseModel):
    """Replicas in a Ray cluster."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    address: str | None = None
    """HOST:PORT of the head; where not said, the cluster that runs here, or else one that is started here."""
    replicas: ReplicaCount = ReplicaCount()
    gpus_per_replica: Annotated[ReplicaResources, AfterValidator(_whole_above_one)] | None = None
    """A part of one lets replicas share it. If not said: one where the cluster has any, else none."""
    cpus_per_replica: ReplicaResources = 1.0
    resources: dict[str, ReplicaResources] = {}
    """Of the cluster's own, such as slices of one size that nodes were started with."""
