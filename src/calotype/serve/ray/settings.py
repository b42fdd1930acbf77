"""Settings of replicas in a Ray cluster: their number and their resources."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from calotype.serve.scheduler.replica_set import ReplicaCount


def _whole_above_one(number: float) -> float:
    if number > 1 and number != int(number):
        raise ValueError(f"{number:g} is neither a fraction of one GPU nor a whole number of GPUs")
    return number


ReplicaResources = Annotated[float, Field(ge=0, le=1024, allow_inf_nan=False)]


class ClusterSettings(BaseModel):
    """Replicas in a Ray cluster."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    address: str | None = None
    """HOST:PORT of the head node; default: the cluster that runs here, or a new local one."""
    replicas: ReplicaCount = ReplicaCount()
    gpus_per_replica: Annotated[ReplicaResources, AfterValidator(_whole_above_one)] | None = None
    """A fraction lets replicas share a GPU. Default: 1 if the cluster has GPUs, else 0."""
    cpus_per_replica: ReplicaResources = 1.0
    resources: dict[str, ReplicaResources] = {}
    """Custom resources of the cluster, such as MIG slices of one size."""
