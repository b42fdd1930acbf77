"""A seed shows today what it showed when the golden pictures were made, to within 2/255."""

from __future__ import annotations

import pytest
from PIL import Image

from calotype.engine.engine import Engine
from calotype.imaging.image_io import read_record
from tests.engines import difference
from tests.golden.make import FOLDER, PICTURES, SHARED, open_engine

REMAKE = "if the change is meant, make them anew: python -m tests.golden.make"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return open_engine()


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_has_not_drifted(name: str, engine: Engine) -> None:
    path = FOLDER / f"{name}.png"
    record = read_record(path)
    assert record.model.sha256 == engine.model.identity.sha256, f"other weights or architecture; {REMAKE}"
    again = engine.generate(record.generate_request()).images[0]
    with Image.open(path) as golden:
        assert difference(again, golden.convert("RGB")) <= 2, REMAKE


@pytest.mark.parametrize("name", PICTURES)
def test_the_file_is_the_one_the_list_asks_for(name: str) -> None:
    request = read_record(FOLDER / f"{name}.png").request
    assert {knob: request[knob] for knob in (SHARED | PICTURES[name])} == SHARED | PICTURES[name], REMAKE


def test_every_file_is_in_the_list_and_all_are_small() -> None:
    files = list(FOLDER.glob("*.png"))
    assert {file.stem for file in files} == set(PICTURES)
    assert sum(file.stat().st_size for file in files) < 200_000
