"""Decoding, scaling and cropping: what a picture becomes, and what is refused."""

import io
import struct
import zlib
from typing import Any

import pytest
import torch
from PIL import ExifTags, Image, PngImagePlugin

from calotype.train.data.image_transforms import HEADER_BYTES, ImageError, crop_and_resize, size_in
from calotype.train.data.types import as_numbers
from tests.unit.train.data.specimens import picture


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def halves(width: int = 40, height: int = 20, kind: str = "PNG", **options: Any) -> bytes:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (width, height), "red")
    image.paste("blue", (width // 2, 0, width, height))
    return encoded(image, kind, **options)


def centre(
    data: bytes | Image.Image, target: tuple[int, int] = (8, 8)
) -> tuple[torch.Tensor, tuple[int, ...]]:
    pixels, size = crop_and_resize(data, target, random_crop=False, random_flip=False, draw=0)
    return as_numbers(pixels), size


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
def test_a_picture_becomes_numbers_from_minus_one_to_one(kind: str) -> None:
    white = encoded(Image.new("RGB", (30, 20), "white"), kind)
    pixels, size = centre(white)
    assert pixels.shape == (3, 8, 8)
    assert pixels.dtype == torch.float32
    assert pixels.is_contiguous()
    assert torch.equal(pixels, torch.ones(3, 8, 8))
    assert size == (20, 30, 0, 2, 8, 8)
    assert torch.equal(centre(encoded(Image.new("RGB", (9, 9)), kind))[0], -torch.ones(3, 8, 8))


def test_the_centre_is_kept_and_the_crop_is_told() -> None:
    pixels, size = centre(halves())
    assert size == (20, 40, 0, 4, 8, 8)
    left, right = pixels[:, :, 0].mean(1), pixels[:, :, -1].mean(1)
    assert left.argmax() == 0
    assert right.argmax() == 2


def test_a_random_crop_depends_on_the_draw_alone_and_reaches_everywhere() -> None:
    crops = [
        crop_and_resize(halves(), (8, 8), random_crop=True, random_flip=False, draw=n)[1] for n in range(60)
    ]
    assert {crop[3] for crop in crops} == set(range(9))
    assert {crop[2] for crop in crops} == {0}
    again = crop_and_resize(halves(), (8, 8), random_crop=True, random_flip=False, draw=7)
    assert again[1] == crops[7]


def test_a_flip_mirrors_and_the_crop_is_counted_in_the_mirrored_picture() -> None:
    plain = [
        crop_and_resize(halves(), (8, 8), random_crop=True, random_flip=False, draw=n) for n in range(30)
    ]
    flipped = [
        crop_and_resize(halves(), (8, 8), random_crop=True, random_flip=True, draw=n) for n in range(30)
    ]
    mirrored = encoded(Image.open(io.BytesIO(halves())).transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    from_mirrored = [
        crop_and_resize(mirrored, (8, 8), random_crop=True, random_flip=False, draw=n) for n in range(30)
    ]
    assert [size for _, size in flipped] == [size for _, size in plain]
    as_mirrored = [torch.allclose(a[0], b[0], atol=0.02) for a, b in zip(flipped, from_mirrored, strict=True)]
    as_plain = [torch.equal(a[0], b[0]) for a, b in zip(flipped, plain, strict=True)]
    assert all(a or b for a, b in zip(as_mirrored, as_plain, strict=True))
    assert 5 < sum(as_plain) < 25


def test_small_pictures_are_enlarged_and_tall_targets_are_filled() -> None:
    pixels, size = centre(picture(3, height=5, width=4), (24, 16))
    assert pixels.shape == (3, 24, 16)
    assert size[4:] == (24, 16)
    assert torch.allclose(pixels[2], torch.full((24, 16), 77 / 127.5 - 1))


def test_a_picture_taken_sideways_is_shown_upright() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    data = halves(kind="JPEG", exif=exif)
    pixels, size = centre(data)
    assert size[:2] == (40, 20)
    assert size_in(data) == (40, 20)
    assert pixels[:, 0, :].mean(1).argmax() == 0
    assert pixels[:, -1, :].mean(1).argmax() == 2


def turned_png(where: str) -> bytes:
    """A white square amid black in a wide picture, with its orientation where programs put it."""
    image = Image.new("RGB", (40, 20))
    image.paste("white", (10, 0, 30, 20))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    raw, text = exif.tobytes(), PngImagePlugin.PngInfo()
    if where == "as ImageMagick has it":
        text.add_text("Raw profile type exif", f"\nexif\n{len(raw):8}\n{raw.hex()}\n", zip=True)
    elif where == "in XMP":
        text.add_itxt("XML:com.adobe.xmp", '<rdf:Description tiff:Orientation="6"/>')
    data = encoded(image, pnginfo=text)
    if where == "behind the pixels":
        body = b"eXIf" + raw.removeprefix(b"Exif\0\0")
        chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        data = data[:-12] + chunk + data[-12:]
    return data


@pytest.mark.parametrize("where", ["as ImageMagick has it", "in XMP", "behind the pixels"])
def test_a_png_that_is_turned_keeps_its_proportions(where: str) -> None:
    pixels, size = centre(turned_png(where), (20, 20))
    assert size == (40, 20, 10, 0, 20, 20)
    assert torch.equal(pixels, torch.ones(3, 20, 20))


@pytest.mark.parametrize("where", ["as ImageMagick has it", "in XMP"])
def test_buckets_know_a_png_as_it_is_shown(where: str) -> None:
    data = turned_png(where)
    # Without what lies behind the first pixels.
    assert size_in(data[: data.index(b"IDAT") + 8]) == (40, 20)


def test_what_is_transparent_becomes_white() -> None:
    pixels, _ = centre(encoded(Image.new("RGBA", (8, 8), (255, 0, 0, 0))))
    assert torch.equal(pixels, torch.ones(3, 8, 8))
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([0, 0, 0])
    assert torch.equal(centre(encoded(palette, transparency=0))[0], torch.ones(3, 8, 8))


def test_sixteen_bits_are_scaled_and_grey_and_cmyk_are_colours() -> None:
    deep = Image.new("I;16", (8, 8), 2**15)
    assert torch.allclose(centre(encoded(deep))[0], torch.zeros(3, 8, 8), atol=0.01)
    assert centre(encoded(Image.new("L", (8, 8), 128)))[0].shape == (3, 8, 8)
    assert centre(encoded(Image.new("CMYK", (8, 8)), "JPEG"))[0].shape == (3, 8, 8)


def test_a_large_jpeg_is_decoded_in_part_but_remembered_whole() -> None:
    pixels, size = centre(halves(1600, 800, "JPEG"))
    assert size == (800, 1600, 0, 4, 8, 8)
    assert pixels[:, :, 0].mean(1).argmax() == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes"),
        (b"hello, I am a text", "not a PNG, WebP or JPEG"),
        (picture(1, height=64, width=64, kind="JPEG")[:-200], "cannot be decoded"),
        (halves(900, 900, "JPEG", quality=100)[:-9000], "cannot be decoded"),
        (picture(1, height=64, width=64)[:-30], "cannot be decoded"),
        (picture(1, height=64, width=64, kind="WEBP")[:-10], "cannot be decoded"),
        (encoded(Image.new("RGB", (4, 4)), "GIF"), "not a PNG, WebP or JPEG"),
    ],
)
def test_damaged_pictures_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        centre(data)


def test_a_picture_of_absurd_size_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ImageError, match="12000×12000 is over the limit of 134217728"):
        centre(encoded(Image.new("1", (12000, 12000))))
    # So large that Pillow does not even open it.
    with pytest.raises(ImageError, match="over the limit of 134217728"):
        centre(encoded(Image.new("1", (20000, 12000))))


def test_the_size_is_read_from_the_start_alone() -> None:
    data = encoded(Image.effect_noise((700, 600), 90))
    assert len(data) > HEADER_BYTES
    assert size_in(data[:HEADER_BYTES]) == (600, 700)
    assert size_in(b"nothing") is None
