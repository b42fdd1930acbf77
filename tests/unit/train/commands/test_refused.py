"""A run that is refused before it begins leaves nothing behind."""

from pathlib import Path

import pytest

from calotype.core.errors import ExitCode
from tests.unit.train.commands.conftest import Calotype


@pytest.mark.parametrize("kind", ["folder", "shards", "mds", "precomputed"])
def test_data_that_is_not_there_costs_no_folder(calotype: Calotype, recipe_file: Path, kind: str) -> None:
    before = sorted(Path().rglob("*"))
    asked = (f"data.kind={kind}", "data.path=./nosuch", "checkpoint.folder=runs/{name}")
    seen = calotype("train", recipe_file, *asked, "--device", "cpu")
    assert seen.code == ExitCode.NOT_FOUND
    assert seen.err.startswith("error: data.path: ")
    assert "nosuch" in seen.err
    assert sorted(Path().rglob("*")) == before
