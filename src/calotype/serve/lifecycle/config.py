"""The configuration of a deployment: models, workers, interfaces and limits."""

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
"""The engine without a model, and how many rows of memory it simulates."""


def makes_tiny_pictures(engine: str) -> bool:
    """Whether this engine needs no model."""
    return _TINY_IMAGES.fullmatch(engine) is not None


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""Becomes the name of a folder."""


class DeploymentConfig(BaseModel):
    """All settings of `calotype serve`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    name: Name
    models: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Models to load at the start; the first is the default of requests that name none."""
    devices: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("auto",)
    """One worker for each: cpu, cuda:N, or the UUID of a GPU or MIG slice; `all` is every GPU and slice."""
    preset: Annotated[str, AfterValidator(known_preset)] = "fast"
    precision: str | None = None
    memory_bytes: Annotated[int, Field(ge=1)] | None = None
    """Memory for the weights of each worker; by default a share of the free memory."""
    max_rows: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Rows of one UNet evaluation; an image with guidance takes two."""
    models_folder: Annotated[Path, Field(strict=False)] | None = None
    keys_folder: Annotated[Path, Field(strict=False)] | None = None
    """Folder of keys.json, for instance a mounted secret; by default the deployment's own folder."""
    engine: str = "calotype"
    """`calotype`; `nothing` returns tiny images at once, to measure everything except the engine."""
    cluster: ClusterSettings | None = None
    """Run workers as replicas in a Ray cluster instead of processes of this machine."""
    drain_s: Annotated[float, Field(ge=0, le=86400)] = 30.0
    """How long running jobs may take to end when it stops."""
    hang_s: Annotated[float, Field(gt=0, le=7 * 86400)] = 600.0
    """How long a worker with jobs may be silent between two steps; then it is killed, its jobs requeued."""
    load_s: Annotated[float, Field(gt=0, le=7 * 86400)] = 1800.0
    """The same while a model is loaded or compiled, or a node runs."""
    records: Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)] = ()
    """Folders of measurements to show, besides `records` in the deployment's own folder."""
    reached: ServeSettings = ServeSettings(grpc_port=0)
    requests: RequestLimits = RequestLimits()
    queue: QueueLimits = QueueLimits()

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names that clients use."""
        return tuple(served_name(model) for model in self.models)

    @field_validator("models")
    @classmethod
    def _unique_names(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        names = [served_name(model) for model in models]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(
                f"two models would be called {short_repr(duplicate)}; rename a file, or name it once"
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
                f"{', '.join(devices)} is a device of one machine; in a cluster give cpu, cuda or no device"
            )
            raise ValueError(f"{rule}, and set gpus_per_replica")
        return cluster

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """Build from plain values; raises RequestError listing every problem."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise RequestError(problems_of(cls, error)) from None
