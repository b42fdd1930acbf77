"""Picture files: records that survive, pixels that do not change, files that are not what they seem."""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import ExifTags, Image, PngImagePlugin

from calotype.core.errors import NotFoundError, RequestError
from calotype.imaging import image_io
from calotype.imaging.image_io import encode_image, open_image, read_record, save_image
from calotype.spec.generate_request import MAX_PROMPT_LENGTH, GenerateRequest
from calotype.spec.records.image import GridAxis, ModelIdentity, PictureRecord
from tests.engines import difference

FORMATS = ["png", "webp", "jpeg", "jpg"]
PROMPT = "ein (Apfel:1.2), 赤いリンゴ 🍎 \\( “quoted” \n new line \x7f </x> %00"


def record(prompt: str = PROMPT, **changes: Any) -> PictureRecord:
    values: dict[str, Any] = {
        "calotype": "0.1.0",
        "request": GenerateRequest.parse({"prompt": prompt, "width": 64, "seed": 2**64 - 1}).as_dict(),
        "model": ModelIdentity(reference="emoji", architecture="emoji", sha256="0" * 64),
        "preset": "baseline",
        "precision": "fp32",
        "device": "cpu",
        "versions": {"torch": "2.13"},
    }
    return PictureRecord(**{**values, **changes})


def gradient(width: int = 40, height: int = 24) -> Image.Image:
    values = [(x * 6 % 256, y * 10 % 256, (x + y) * 3 % 256) for y in range(height) for x in range(width)]
    image = Image.new("RGB", (width, height))
    image.putdata(values)
    return image


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("prompt", [PROMPT, "🍎" * MAX_PROMPT_LENGTH, ""])
def test_a_record_comes_back_as_it_was(tmp_path: Path, suffix: str, prompt: str) -> None:
    path = tmp_path / f"picture.{suffix}"
    noted = record(prompt, files={"loras/a": "f" * 64}, grid=[GridAxis(knob="steps", values=[1, 2])])
    save_image(gradient(), path, noted)
    assert read_record(path) == noted
    assert read_record(path).generate_request().prompt == prompt


@pytest.mark.parametrize(("suffix", "longest"), [("webp", 16_383), ("jpeg", 65_500)])
def test_a_picture_that_is_too_long_for_its_format_is_refused(
    tmp_path: Path, suffix: str, longest: int
) -> None:
    save_image(Image.new("RGB", (longest, 8)), tmp_path / f"picture.{suffix}", record())
    with pytest.raises(RequestError, match=f"{suffix} allows {longest} .*{longest + 1}×8; use png"):
        save_image(Image.new("RGB", (longest + 1, 8)), tmp_path / f"longer.{suffix}", record())


@pytest.mark.parametrize("suffix", FORMATS)
def test_any_program_reads_the_picture(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"picture.{suffix}"
    save_image(gradient(), path, record())
    with Image.open(path) as read:
        assert read.format == {"jpg": "JPEG"}.get(suffix, suffix.upper())
        assert difference(read.convert("RGB"), gradient()) <= {"png": 0}.get(suffix, 60)


def test_quality_is_heard() -> None:
    rough, fine = (encode_image(gradient(), "jpeg", record(""), quality=quality) for quality in (10, 95))
    assert len(rough) < len(fine)


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"'\.bmp' is not one of png, webp, jpeg"):
        save_image(gradient(), tmp_path / "picture.bmp", record())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_nothing_and_spoils_nothing(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "picture.png"
    save_image(gradient(), path, record("before"))

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync", full) if failing == "fsync" else (Path, "replace", full)))
        with pytest.raises(OSError, match="No space left"):
            save_image(gradient(), path, record("after"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["picture.png"]
    assert read_record(path).request["prompt"] == "before"


def written(place: Path, data: bytes, name: str = "picture.png") -> Path:
    path = place / name
    path.write_bytes(data)
    return path


def png_with(key: str, text: str) -> bytes:
    info, buffer = PngImagePlugin.PngInfo(), io.BytesIO()
    info.add_itxt(key, text)
    gradient().save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def webp_with(description: Any) -> bytes:
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.ImageDescription] = description
    gradient().save(buffer, "WEBP", exif=exif)
    return buffer.getvalue()


def plain(format_name: str, **settings: Any) -> bytes:
    buffer = io.BytesIO()
    gradient().save(buffer, format_name, **settings)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        plain("PNG"),
        plain("WEBP"),
        plain("JPEG"),
        plain("JPEG", comment=b"a calotype of 1845"),
        png_with("prompt", json.dumps({"3": {"class_type": "KSampler"}})),
        webp_with("a calotype of 1845"),
        webp_with('{"calotypes": 3}'),
        webp_with('["calotype"]'),
    ],
)
def test_a_picture_by_another_program_has_no_record(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(NotFoundError, match="holds no Calotype record; was it made by another program"):
        read_record(written(tmp_path, data))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be read: it: Invalid JSON"),
        ("[]", "cannot be read: it: "),
        ("{}", "cannot be read: calotype: Field required"),
        (json.dumps({**record().model_dump(mode="json"), "preset": 3}), "cannot be read: preset: "),
    ],
)
def test_a_broken_record_says_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        read_record(written(tmp_path, png_with("calotype", text)))


def test_a_record_with_a_request_nobody_could_make_is_refused(tmp_path: Path) -> None:
    noted = record()
    path = written(
        tmp_path, encode_image(gradient(), "png", record(request={**noted.request, "steps": 10**9}))
    )
    with pytest.raises(RequestError, match="steps: 1000000000 is out of range"):
        read_record(path).generate_request()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds nothing."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", size), (b"IDAT", b""), (b"IEND", b""))
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (png_header(100_000, 100_000), "exceeds limit of"),
        (png_header(12_000, 12_000), "is 12000×12000, the limit is 134217728 pixels; scale it down"),
        (png_header(10, 10), "is not a PNG, WebP or JPEG that can be read"),
        (plain("PNG")[:-40], "is not a PNG, WebP or JPEG that can be read"),
        (plain("JPEG")[:300], "is not a PNG, WebP or JPEG that can be read"),
        (plain("WEBP")[:60], "is not a PNG, WebP or JPEG that can be read"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "its contents are of another kind"),
        (b"%PDF-1.7\n%%EOF", "its contents are of another kind"),
        (plain("GIF"), "its contents are of another kind"),
        (plain("BMP"), "its contents are of another kind"),
        (b"", "its contents are of another kind"),
    ],
)
def test_what_is_no_usable_picture_is_refused_by_its_contents(tmp_path: Path, data: bytes, says: str) -> None:
    path = written(tmp_path, data)
    for reader in (open_image, read_record):
        with pytest.raises(RequestError, match=says) as caught:
            reader(path)
        assert str(path) in str(caught.value)


def test_text_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    info, buffer = PngImagePlugin.PngInfo(), io.BytesIO()
    info.add_itxt("calotype", "x" * 70_000_000, zip=True)
    gradient().save(buffer, "PNG", pnginfo=info)
    with pytest.raises(RequestError, match="is not a PNG, WebP or JPEG that can be read"):
        read_record(written(tmp_path, buffer.getvalue()))


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "missing.png", Path("a\0b")):
        with pytest.raises(NotFoundError, match="no image"):
            open_image(path)


def test_a_file_too_large_to_be_a_picture_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_io, "MAX_FILE_BYTES", 100)
    with pytest.raises(RequestError, match="the limit is 100"):
        open_image(written(tmp_path, plain("PNG")))
