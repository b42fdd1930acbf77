"""Builds the records of the images that an engine generates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from calotype.engine.device import device_name, precision_name
from calotype.models.model import Model
from calotype.spec.generate_request import GenerateRequest
from calotype.spec.records.image import PictureRecord
from calotype.version import VERSION

RECORDED_VERSIONS = ("torch", "diffusers", "transformers")


def image_records(
    model: Model, preset: str, request: GenerateRequest, files: Mapping[str, str]
) -> list[PictureRecord]:
    """One record per image of a resolved request, each with its own seed."""
    versions = _versions()
    return [
        PictureRecord(
            calotype=VERSION,
            request=request.with_changes(seed=seed, count=1).as_dict(),
            model=model.identity,
            preset=preset,
            precision=precision_name(model.dtype),
            device=device_name(model.device),
            versions=versions,
            prediction=model.architecture.prediction_type,
            files=dict(files),
        )
        for seed in request.seeds()
    ]


@cache
def _versions() -> dict[str, str]:
    """Cached: reading package metadata takes milliseconds, and a server needs it for every request."""
    return {name: version(name) for name in RECORDED_VERSIONS}
