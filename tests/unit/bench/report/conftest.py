"""A report with everything in it, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from calotype.bench.report.build import compose
from calotype.bench.report.document import Report, Section
from calotype.bench.report.load import gather
from tests.unit.bench.report.samples import everything, stored
from tests.unit.cli.conftest import calotype

__all__ = ["calotype", "of", "section", "stored"]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return compose(gather(everything(tmp_path_factory.mktemp("runs"))))


def section(report: Report, name: str) -> Section:
    return next(one for one in report.sections if one.name == name)


def of(folder: Path, *measurements: object) -> Report:
    """A report of these measurements alone."""
    return compose(gather(stored(folder, *measurements)))  # type: ignore[arg-type]
