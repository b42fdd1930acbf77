"""Workflows out of files of every kind, known by what they hold."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from calotype.core.errors import NotFoundError, RequestError
from calotype.workflow.export_editor import to_workflow
from calotype.workflow.load import Opened, open_workflow
from tests.unit.workflow.small_nodes import REGISTRY, usual

PROMPT = usual()
PROMPT["6"]["inputs"]["text"] = "a cat in Zürich, 猫"
WORKFLOW = to_workflow(PROMPT, REGISTRY)


def opened(data: bytes) -> Opened:
    return open_workflow(data, "file", REGISTRY)


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def png(itxt: bool = False, packed: bool = False, **notes: Any) -> bytes:
    info, buffer = PngImagePlugin.PngInfo(), io.BytesIO()
    for key, value in notes.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=not itxt)
        if itxt:
            info.add_itxt(key, text, zip=packed)
        else:
            info.add_text(key, text, zip=packed)
    Image.new("RGB", (8, 8)).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def with_exif(kind: str, notes: dict[int, str]) -> bytes:
    buffer, exif = io.BytesIO(), Image.Exif()
    for tag, text in notes.items():
        exif[tag] = text
    Image.new("RGB", (8, 8)).save(buffer, kind, exif=exif)
    return buffer.getvalue()


def test_api_format_and_what_was_sent_to_a_server() -> None:
    assert opened(as_bytes(PROMPT)) == Opened(PROMPT)
    body = {"prompt": PROMPT, "client_id": "x", "extra_data": {"extra_pnginfo": {"workflow": WORKFLOW}}}
    assert opened(as_bytes(body)) == Opened(PROMPT, WORKFLOW)
    assert opened(as_bytes({"prompt": PROMPT})) == Opened(PROMPT)
    odd = {"prompt": PROMPT["4"], "x": {"class_type": "Save", "inputs": {}}}
    assert opened(as_bytes(odd)).prompt == odd


def test_editor_format_is_converted_and_kept() -> None:
    seen = opened(as_bytes(WORKFLOW))
    assert seen.workflow == WORKFLOW
    assert seen.prompt["6"]["inputs"] == PROMPT["6"]["inputs"]
    assert opened(b"\xef\xbb\xbf" + as_bytes(WORKFLOW)) == seen


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("itxt", [False, True])
def test_a_png_holds_both(itxt: bool, packed: bool) -> None:
    assert opened(png(itxt, packed, prompt=PROMPT, workflow=WORKFLOW)) == Opened(PROMPT, WORKFLOW)
    assert opened(png(itxt, prompt=PROMPT)) == Opened(PROMPT)
    assert opened(png(itxt, workflow=WORKFLOW)).prompt["3"]["inputs"] == PROMPT["3"]["inputs"]


@pytest.mark.parametrize("kind", ["WEBP", "JPEG"])
def test_webp_and_jpeg_hold_them_in_exif(kind: str) -> None:
    make, model = 0x010F, 0x0110
    notes = {model: f"prompt:{json.dumps(PROMPT)}", make: f"workflow:{json.dumps(WORKFLOW)}"}
    assert opened(with_exif(kind, notes)) == Opened(PROMPT, WORKFLOW)
    assert opened(with_exif(kind, {0x010E: f"Workflow: {json.dumps(WORKFLOW)}"})).workflow == WORKFLOW


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "neither an image nor JSON"),
        (b"hello", "neither an image nor JSON"),
        (b"\xff\xfe\xff", "neither an image nor JSON"),
        (b"[" * 100_000, "neither an image nor JSON"),
        (b"[1]", "no JSON object of nodes"),
        (b"{}", "no workflow"),
        (b'{"a": 1}', "no workflow"),
        (b"\x89PNG\r\n\x1a\nbroken", "not a PNG, WebP or JPEG"),
        (b"RIFFxxxxWAVE", "not a PNG, WebP or JPEG that can be read: its content has another format$"),
        (png(prompt="not json"), "prompt in file"),
    ],
)
def test_files_without_a_workflow_say_what_they_are(data: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        opened(data)


def test_pictures_without_a_workflow() -> None:
    with pytest.raises(NotFoundError, match="file holds no workflow"):
        opened(png(title="hello"))
    with pytest.raises(NotFoundError, match="generate --from file"):
        opened(png(calotype={"request": {}}))
