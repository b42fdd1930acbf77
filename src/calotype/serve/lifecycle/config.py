"""What a deployment is: its models and workers, how it is reached, what it takes in. Knows no processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from calotype.core.errors import RequestError, did_you_mean
from calotype.serve.model_names import served_name
from calotype.serve.queue.limits import QueueLimits
from calotype.serve.ray.settings import ClusterSettings
from calotype.serve.scheduler.settings import RequestLimits
from calotype.serve.settings import ServeSettings
from calotype.spec.constants import PRECISIONS
from calotype.spec.job import known_preset
from calotype.spec.validation_errors import problems_of, short_repr

ENGINES = ("calotype", "nothing")
_TINY_IMAGES = re.compile(r"nothing(:[0-9]{1,6})?")
"""The engine that does nothing, and how many rows it pretends to have memory for."""


def makes_tiny_pictures(engine: str) -> bool:
    """Whether this engine needs no model."""
    return _TINY_IMAGES.fullmatch(engine) is not None


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""It becomes the name of a folder."""


class DeploymentConfig(BaseModel):
    """Everything that `calotype serve` can be told."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    name: Name
    models: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Loaded at the start; the first is meant where a request names none."""
    devices: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("auto",)
    """One worker for each: cpu, cuda:N, a GPU's or slice's UUID; `all` is every GPU and slice there is."""
    preset: Annotated[str, AfterValidator(known_preset)] = "fast"
    precision: str | None = None
    memory_bytes: Annotated[int, Field(ge=1)] | None = None
    """For the weights of each worker; a share of what is free if not said."""
    max_rows: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Of one UNet evaluation, two for a picture with guidance."""
    models_folder: Annotated[Path, Field(strict=False)] | None = None
    keys_folder: Annotated[Path, Field(strict=False)] | None = None
    """Whose keys.json lets clients in, for instance a mounted secret; the deployment's own if not said."""
    engine: str = "calotype"
    """`calotype`; `nothing` makes tiny pictures at once, to measure all but the engine."""
    cluster: ClusterSettings | None = None
    """Workers are replicas in a Ray cluster, not processes of this machine."""
    drain_s: Annotated[float, Field(ge=0, le=86400)] = 30.0
    """What running jobs have to end in when it stops."""
    hang_s: Annotated[float, Field(gt=0, le=7 * 86400)] = 600.0
    """How long a worker that has jobs may say nothing between two steps; then it is ended, and they go on."""
    load_s: Annotated[float, Field(gt=0, le=7 * 86400)] = 1800.0
    """The same while a model is loaded or compiled, or a node runs."""
    records: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders with measurements to show, besides `records` in the deployment's own."""
    reached: ServeSettings = ServeSettings(grpc_port=0)
    requests: RequestLimits = RequestLimits()
    queue: QueueLimits = QueueLimits()

    @property
    def model_names(self) -> tuple[str, ...]:
        """As clients say them."""
        return tuple(served_name(model) for model in self.models)

    @field_validator("models")
    @classmethod
    def _told_apart(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        names = [served_name(model) for model in models]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(
                f"two models would be called {short_repr(twice)}; rename a file, or name it once"
            )
        return models

    @field_validator("engine")
    @classmethod
    def _known_engine(cls, name: str) -> str:
        if name == "calotype" or makes_tiny_pictures(name):
            return name
        raise ValueError(f"{short_repr(name)} is not an engine; {did_you_mean(name[:60], ENGINES)}")

    @field_validator("precision")
    @classmethod
    def _known_precision(cls, name: str | None) -> str | None:
        if name is None or name in PRECISIONS:
            return name
        raise ValueError(f"{short_repr(name)} is not known; {did_you_mean(name[:60], PRECISIONS)}")

    @field_validator("cluster")
    @classmethod
    def _one_device_each(
        cls, cluster: ClusterSettings | None, before: ValidationInfo
    ) -> ClusterSettings | None:
        devices = before.data.get("devices", ())
        if cluster is not None and devices not in ((), ("auto",), ("cpu",), ("cuda",)):
            rule = (
                f"{', '.join(devices)} is of one machine; in a cluster a replica is told cpu, cuda or nothing"
            )
            raise ValueError(f"{rule}, and gpus_per_replica is what it takes")
        return cluster

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """Build from plain values; raises RequestError listing every problem."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise RequestError(problems_of(cls, error)) from None
