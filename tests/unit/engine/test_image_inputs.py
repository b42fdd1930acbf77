"""Start images and masks: how they are fitted, told apart and found again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from calotype.core.errors import NotFoundError, RequestError
from calotype.engine.engine import Engine
from calotype.engine.image_inputs import Inputs, describe, load_image_inputs, reopen
from tests.engines import difference


def picture(width: int = 40, height: int = 24) -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ((40, 24), (40, 24)),
        ((47, 31), (40, 24)),
        ((5, 900), (16, 896)),
        ((8, 8), (16, 16)),
        ((20_000, 9), (16_384, 16)),
    ],
)
def test_a_size_not_given_is_the_images_in_multiples_of_eight(
    given: tuple[int, int], made: tuple[int, int]
) -> None:
    assert Inputs(Image.new("RGB", given)).size() == made
    assert Inputs().size() is None


def test_a_picture_of_the_right_size_is_taken_as_it_is() -> None:
    fitted = Inputs(picture(), picture().convert("L")).fitted(40, 24)
    assert fitted.image is not None
    assert fitted.mask is not None
    assert difference(fitted.image, picture()) == 0
    assert difference(fitted.mask, picture().convert("L")) == 0


def test_another_shape_is_cropped_about_its_centre() -> None:
    wide = Image.new("RGB", (48, 16), (255, 0, 0))
    wide.paste((0, 0, 255), (16, 0, 32, 16))
    fitted = Inputs(wide).fitted(16, 16).image
    assert fitted is not None
    assert set(fitted.getcolors() or ()) == {(256, (0, 0, 255))}


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I", "I;16"])
def test_pictures_of_any_kind_are_understood(mode: str) -> None:
    grey = Image.new("L", (16, 16), 255)
    image = grey.convert(mode) if mode != "I;16" else Image.fromarray(np.full((16, 16), 65535, np.uint16))
    image = image.point(lambda value: value * 257) if mode == "I" else image
    fitted = Inputs(image, image).fitted(16, 16)
    assert fitted.image is not None
    assert fitted.mask is not None
    assert fitted.image.getpixel((3, 3)) == (255, 255, 255)
    assert fitted.mask.getpixel((3, 3)) == 255


def test_sixteen_bits_are_scaled_not_cut() -> None:
    deep = Image.fromarray(np.full((16, 16), 40_000, np.uint16))
    fitted = Inputs(deep).fitted(16, 16).image
    assert fitted is not None
    assert fitted.getpixel((0, 0)) == (155, 155, 155)


def test_a_photograph_is_turned_the_way_it_was_held(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    picture(40, 24).save(tmp_path / "photo.jpg", exif=exif)
    image, _ = describe(tmp_path / "photo.jpg")
    assert image.size == (24, 40)


def test_a_picture_is_found_again_by_its_record(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    picture().save(path)
    image, noted = describe(str(path))
    assert difference(reopen(noted, "image"), image) == 0
    picture().transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path)
    with pytest.raises(RequestError, match=r"mask: .*photo\.png has changed since the record was made"):
        reopen(noted, "mask")
    path.unlink()
    with pytest.raises(NotFoundError, match=r"no image .*photo\.png"):
        reopen(noted, "image")


def test_a_picture_that_was_never_in_a_file_must_be_given_again() -> None:
    _, noted = describe(picture())
    with pytest.raises(RequestError, match="image: the record's image was never in a file; pass it again"):
        load_image_inputs({"prompt": "x", "image": noted.model_dump()}, None, None)


def test_pictures_in_memory_are_told_apart() -> None:
    flipped = picture().transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    assert describe(picture())[1] == describe(picture())[1]
    assert describe(picture())[1] != describe(flipped)[1]


def test_a_request_names_its_pictures_and_makes_the_same_again(engine: Engine, tmp_path: Path) -> None:
    picture(32, 32).save(tmp_path / "photo.png")
    made = engine.generate("an apple", image=tmp_path / "photo.png", strength=0.5, steps=2)
    request = made.records[0].generate_request()
    assert request.image is not None
    assert request.image.path == str(tmp_path / "photo.png")
    assert difference(engine.generate(request).images[0], made.images[0]) == 0


def test_an_unreadable_image_is_refused_before_anything_is_done(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "drawing.svg").write_text("<svg/>")
    with pytest.raises(RequestError, match=r"drawing\.svg is not a PNG, WebP or JPEG"):
        engine.generate("an apple", image=tmp_path / "drawing.svg")


def test_a_mask_alone_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="mask: a mask needs the image"):
        engine.generate("an apple", mask=picture())
