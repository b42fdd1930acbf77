"""Points that cost nothing, and narrow models to measure for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calotype.bench.sweep.points import parse_sweep, points_of
from calotype.spec.bench_job import Point
from tests.small_models import shrunk_folder
from tests.unit.bench.sweep.children import Children
from tests.unit.cli.conftest import calotype

__all__ = ["calotype"]


@pytest.fixture
def children(tmp_path: Path) -> Children:
    return Children(tmp_path / "children")


def points(*batches: int) -> list[Point]:
    """Points named batch=1, batch=2, …"""
    return points_of(parse_sweep({"kind": "inference", "axes": {"batch": [*batches]}}))


@pytest.fixture(scope="session")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of a catalogue model with small widths, by its name."""
    place, made = tmp_path_factory.mktemp("narrow"), dict[str, str]()

    def folder(name: str) -> str:
        if name not in made:
            made[name] = str(shrunk_folder(place, name))
        return made[name]

    return folder
