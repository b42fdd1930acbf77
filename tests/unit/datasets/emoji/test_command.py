"""`calotype data emoji` as a user meets it."""

import json
from functools import partial
from pathlib import Path

import pytest

from calotype.core.errors import ExitCode
from calotype.datasets.emoji import build as building
from calotype.datasets.emoji.build import Ingredients, gather
from tests.unit.cli.conftest import Calotype, calotype

__all__ = ["calotype"]


@pytest.fixture(autouse=True)
def _small_packages(ingredients: Ingredients, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture's packages instead of the pinned ones; everything else is as it is."""
    styles = [style for style, _ in ingredients.styles]
    small = partial(gather, styles=styles, names=ingredients.names.package)
    monkeypatch.setattr(building, "gather", small)


def test_it_builds_says_so_and_then_finds_it_there(
    calotype: Calotype, tarballs: Path, tmp_path: Path
) -> None:
    order = ("data", "emoji", tmp_path / "set", "--from", tarballs, "--workers", 1, "--backgrounds", 2)
    first = calotype(*order)
    assert first.code == 0, first.err
    record = json.loads((tmp_path / "set" / "dataset.json").read_text())
    assert f"wrote {record['counts']['pictures']} images of {record['counts']['emoji']} emoji" in first.out
    assert record["sha256"] in first.out
    again = calotype(*order, "--json")
    assert again.code == 0
    told = json.loads(again.out)
    assert told["is_new"] is False
    assert told["sha256"] == record["sha256"]


def test_offline_without_a_cache_ends_with_its_own_code(calotype: Calotype, tmp_path: Path) -> None:
    refused = calotype("data", "emoji", tmp_path / "set", "--offline")
    assert refused.code == ExitCode.OFFLINE
    assert "run once without --offline" in refused.err
    assert not (tmp_path / "set").exists()


def test_a_bad_tarball_is_refused(calotype: Calotype, tarballs: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    for file in tarballs.iterdir():
        (tmp_path / "bad" / file.name).write_bytes(file.read_bytes() + b"\0")
    refused = calotype("data", "emoji", tmp_path / "set", "--from", tmp_path / "bad")
    assert refused.code == ExitCode.BAD_REQUEST
    assert "its checksum is sha512-" in refused.err
    assert not (tmp_path / "set").exists()
