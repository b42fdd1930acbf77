"""Pictures beside the records, on the page."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image

from calotype.bench.report.build import compose
from calotype.bench.report.document import Report
from calotype.bench.report.load import gather
from calotype.bench.report.sections.contact_sheets import SIDE
from calotype.imaging.image_io import save_image
from calotype.spec.records.image import GridAxis, ModelIdentity, PictureRecord
from tests.unit.bench.report.conftest import section
from tests.unit.bench.report.samples import picture, stored


def test_sheets_over_steps_and_guidance_in_order(report: Report) -> None:
    steps, guidance = section(report, "pictures").sheets
    assert [one.caption for one in steps.pictures] == [
        *("1 step", "2 steps", "4 steps", "8 steps"),
        *("16 steps", "32 steps", "64 steps"),
    ]
    assert [one.caption for one in guidance.pictures] == ["cfg 7", "cfg 8", "cfg 11"]
    assert len(steps.commands) == 7


def test_batches_of_one_seed_begin_with_the_same_picture_which_is_shown_once(tmp_path: Path) -> None:
    asked = [{"steps": steps, "count": count} for count in (1, 4) for steps in (2, 4)]
    points = [
        picture(f"{each}", 1.0, request=each, settings={"steps": each["steps"], "batch": each["count"]})
        for each in asked
    ]
    files = stored(tmp_path, *points)
    (tmp_path / "pictures").mkdir()
    for point in points:
        Image.new("RGB", (8, 8), "red").save(tmp_path / "pictures" / f"{point.id}.webp")
    [sheet] = section(compose(gather(files)), "pictures").sheets
    assert [one.caption for one in sheet.pictures] == ["2 steps", "4 steps"]


def test_pictures_are_small_and_inside_the_page(report: Report) -> None:
    steps = section(report, "pictures").sheets[0]
    for one in steps.pictures:
        head, _, text = one.source.partition(",")
        assert head == "data:image/webp;base64"
        with Image.open(io.BytesIO(base64.b64decode(text))) as image:
            assert image.size == one.size == (SIDE, SIDE)
    with Image.open(io.BytesIO(base64.b64decode(steps.pictures[-1].source.partition(",")[2]))) as last:
        red, green, blue = last.convert("RGB").getpixel((5, SIDE - 5))  # type: ignore[misc]
    assert (red > 200, green < 60, 100 < blue < 140) == (True, True, True), "the picture itself, not another"


def test_a_picture_that_cannot_be_read_is_listed(tmp_path: Path) -> None:
    two = [picture(f"steps={n}", 1.0, request={"steps": n}, settings={"steps": n}) for n in (1, 2, 3)]
    files = stored(tmp_path, *two)
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (20, 10), "red").save(tmp_path / f"{two[0].point}.png")
    Image.new("RGB", (20, 10), "red").save(tmp_path / "pictures" / f"{two[1].id}.webp")
    (tmp_path / f"{two[2].id}.png").write_bytes(b"no picture")
    found = compose(gather(files))
    [sheet] = section(found, "pictures").sheets
    assert [one.size for one in sheet.pictures] == [(20, 10)] * 2
    [listed] = section(found, "unreadable").tables
    assert listed.rows[0][0].text == str(tmp_path / f"{two[2].id}.png")


def test_a_point_of_a_long_name_has_its_picture_too(tmp_path: Path) -> None:
    """As points are called where the sweep is over prompts."""
    prompt = "a lighthouse, " * 30
    two = [picture(f"prompt={prompt}steps={n}", 1.0, request={"steps": n, "prompt": prompt}) for n in (1, 2)]
    files = stored(tmp_path, *two)
    (tmp_path / "pictures").mkdir()
    for point in two:
        Image.new("RGB", (8, 8), "red").save(tmp_path / "pictures" / f"{point.id}.webp")
    [sheet] = section(compose(gather(files)), "pictures").sheets
    assert [one.caption for one in sheet.pictures] == ["1 step", "2 steps"]


def test_no_pictures_no_section(tmp_path: Path) -> None:
    found = compose(gather(stored(tmp_path, picture("one", 1.0))))
    assert "pictures" not in [one.name for one in found.sections]


def test_pictures_that_generate_made_are_known_by_their_records(tmp_path: Path) -> None:
    files = stored(tmp_path, picture("one", 1.0))
    for name, steps, grid in (
        ("b", 8, []),
        ("a", 20, []),
        ("sheet", 30, [GridAxis(knob="steps", values=[8])]),
    ):
        record = PictureRecord(
            calotype="0.1.0",
            request={"prompt": "a cat", "steps": steps, "cfg": 7.5, "width": 64, "height": 64, "seed": 3},
            model=ModelIdentity(reference="emoji", architecture="emoji", sha256="0"),
            preset="fast",
            precision="fp32",
            device="cpu",
            versions={},
            grid=grid,
        )
        (tmp_path / "pictures").mkdir(exist_ok=True)
        save_image(Image.new("RGB", (64, 64), "blue"), tmp_path / "pictures" / f"{name}.png", record)
    Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / "of somebody else.png")
    found = compose(gather(files))
    [sheet] = section(found, "pictures").sheets
    assert [one.caption for one in sheet.pictures] == ["8 steps", "20 steps"]
    assert sheet.says == "emoji, fast, 64×64, cfg 7.5, seed 3: “a cat”."
    assert sheet.commands[0].startswith("calotype generate --from ")
    assert "unreadable" not in [one.name for one in found.sections]
