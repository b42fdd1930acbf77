"""Measurements made up for tests."""

from __future__ import annotations

from typing import Any

from calotype.spec.records.measurement import WALL, Measurement, Series
from tests.unit.cli.conftest import calotype

__all__ = ["calotype"]


def made_up(point: str = "one", *seconds: float, **changes: Any) -> Measurement:
    """A measurement of a picture that took so many seconds each time."""
    values: dict[str, Any] = {
        "id": f"id-{point}",
        "point": point,
        "kind": "inference",
        "model": "emoji",
        "preset": "baseline",
        "request": {"width": 64, "height": 64, "count": 2, "steps": 4, "cfg": 7.5},
        "device": "cpu",
        "fingerprint": {},
        "command": "calotype bench inference",
        "started_at": "2026-11-15T12:00:00Z",
        "status": "ok",
        "series": {WALL: Series.of("s", seconds)} if seconds else {},
        "samples_per_unit": 2,
    }
    return Measurement.model_validate({**values, **changes})
