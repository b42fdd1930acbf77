"""The fixture's packages, and one set built from them for all tests that only look at it."""

from pathlib import Path

import pytest

from calotype.datasets.emoji.build import Ingredients, build, gather
from calotype.datasets.emoji.manifest import Built
from tests.fixtures.emoji.packing import packed
from tests.unit.datasets.emoji.dataset_reader import ALL_BACKGROUNDS


@pytest.fixture(scope="session")
def tarballs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tarballs")


@pytest.fixture(scope="session")
def ingredients(tarballs: Path) -> Ingredients:
    styles, names = packed(tarballs)
    return gather(folder=tarballs, styles=styles, names=names)


@pytest.fixture(scope="session")
def built(ingredients: Ingredients, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ingredients, tmp_path_factory.mktemp("built") / "emoji", amounts=ALL_BACKGROUNDS)
