"""Pictures that are given and looked at through ComfyUI's interface, and what there is to choose from."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.unit.serve.http.bad_requests import BAD_NAMES, BAD_PICTURES
from tests.unit.serve.workflow.comfy_client import ComfyClient, RefusedError
from tests.unit.serve.workflow.conftest import Connect, graph


def png(colour: tuple[int, ...], size: tuple[int, int] = (6, 4)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGBA" if len(colour) == 4 else "RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def status_of(client: ComfyClient, path: str, **query: Any) -> int:
    try:
        client.get_bytes(path, **query)
    except RefusedError as error:
        return error.status
    return 200


def loading(name: str) -> dict[str, Any]:
    return {**graph(), "1": {"class_type": "SmallLoad", "inputs": {"image": name}}}


def test_a_given_picture_is_read_by_a_workflow_as_it_was_then(connect: Connect, tmp_path: Path) -> None:
    client = connect()
    given = client.upload(png((10, 20, 30)), "given.png")
    assert given == {"name": "given.png", "subfolder": "", "type": "input"}
    assert client.upload(png((10, 20, 30)), "given.png") == given
    assert client.upload(png((0, 0, 1)), "given.png")["name"] == "given (1).png"
    info = client.get("/object_info/SmallLoad")["SmallLoad"]
    assert {"given.png", "given (1).png"} <= set(info["input"]["required"]["image"][0])
    held = client.queue_prompt(graph(("SmallHold", {"until": str(tmp_path / "go")})))["prompt_id"]
    client.until("progress", node="2")
    waiting = client.queue_prompt(loading("given.png"))["prompt_id"]
    assert client.upload(png((99, 99, 99)), "given.png", overwrite="true") == given
    (tmp_path / "go").touch()
    client.until_done(held)
    client.until_done(waiting)
    (picture,) = client.images(waiting)["save"]
    assert opened(picture).getpixel((0, 0)) == (10, 20, 30)
    again = client.queue_prompt(loading("given.png"))["prompt_id"]
    client.until_done(again)
    assert opened(client.images(again)["save"][0]).getpixel((0, 0)) == (99, 99, 99)


@pytest.mark.parametrize("end", [".png", "." + "x" * 40])
def test_the_longest_names_stay_names_that_can_be_fetched(connect: Connect, end: str) -> None:
    client = connect()
    longest = "é" * ((255 - len(end)) // 2) + end
    first, second = png((1, 2, 3)), png((4, 5, 6))
    kept = [client.upload(data, longest) for data in (first, second)]
    assert kept[0]["name"] == longest
    assert " (1)" in kept[1]["name"]
    for one, data in zip(kept, (first, second), strict=True):
        assert client.get_bytes("/view", filename=one["name"], type="input") == data


def test_a_picture_that_was_made_is_read_again(connect: Connect) -> None:
    client = connect()
    made = client.queue_prompt(graph(seed=200))["prompt_id"]
    client.until_done(made)
    name = client.get(f"/history/{made}")[made]["outputs"]["save"]["images"][0]["filename"]
    again = client.queue_prompt(loading(f"{name} [output]"))["prompt_id"]
    client.until_done(again)
    assert opened(client.images(again)["save"][0]).getpixel((0, 0)) == (200, 40, 90)


def test_views(connect: Connect) -> None:
    client = connect()
    half = client.upload(png((10, 200, 30, 128), (64, 32)), "half.png", subfolder="in/side")
    assert half["subfolder"] == "in/side"
    where = {"filename": "half.png", "subfolder": "in/side", "type": "input"}
    assert opened(client.get_bytes("/view", **where)).mode == "RGBA"
    small = opened(client.get_bytes("/view", preview="webp;50", **where))
    assert (small.format, small.size) == ("WEBP", (64, 32))
    assert opened(client.get_bytes("/view", preview="jpeg", **where)).format == "JPEG"
    assert opened(client.get_bytes("/view", channel="rgb", **where)).mode == "RGB"
    alpha = opened(client.get_bytes("/view", channel="a", **where))
    assert alpha.convert("RGBA").getpixel((0, 0)) == (0, 0, 0, 128)
    assert status_of(client, "/view", filename="half.png", type="input") == 404
    assert status_of(client, "/view", filename="half.png", type="elsewhere") == 400
    assert status_of(client, "/view", **{**where, "channel": "x"}) == 400


@pytest.mark.parametrize("preview", ["webp;00019999", "webp;90", "jpeg;90"])
def test_previews_of_pictures_of_any_side(connect: Connect, preview: str) -> None:
    client = connect()
    client.upload(png((1, 2, 3), (66_000, 8)), "wide.png")
    small = opened(client.get_bytes("/view", preview=preview, filename="wide.png", type="input"))
    assert (small.format or "").lower() == preview.partition(";")[0]
    assert small.width > 16_000


def test_a_mask_becomes_the_pictures_transparency(connect: Connect) -> None:
    client = connect()
    client.upload(png((1, 2, 3)), "plain.png")
    reference = json.dumps({"filename": "plain.png", "subfolder": "", "type": "input"})
    kept = client.upload(
        png((255, 255, 255, 77)), "masked.png", "/upload/mask", original_ref=reference, subfolder="clipspace"
    )
    assert kept == {"name": "masked.png", "subfolder": "clipspace", "type": "input"}
    seen = opened(client.get_bytes("/view", filename="masked.png", subfolder="clipspace", type="input"))
    assert seen.getpixel((0, 0)) == (1, 2, 3, 77)
    done = client.queue_prompt(loading("clipspace/masked.png [input]"))["prompt_id"]
    assert client.until_done(done)[-2]["type"] == "execution_success"


@pytest.mark.parametrize("name", sorted(set(BAD_NAMES) - {"half a character"}))
def test_bad_names(connect: Connect, name: str) -> None:
    client, bad = connect(), BAD_NAMES[name]
    assert status_of(client, "/view", filename=bad) == 400
    assert status_of(client, "/view", filename="a.png", subfolder=bad or "..") == 400
    if bad.isprintable() and '"' not in bad:
        with pytest.raises(RefusedError) as refused:
            client.upload(png((0, 0, 0)), "a.png", subfolder=bad or "..")
        assert refused.value.status == 400


def test_bad_pictures_and_forms(connect: Connect) -> None:
    client = connect()
    for name, (data, _) in BAD_PICTURES.items():
        with pytest.raises(RefusedError) as refused:
            client.upload(data, f"{name}.png")
        assert refused.value.status == 400
    with pytest.raises(RefusedError) as refused:
        client.upload(png((0, 0, 0)), "m.png", "/upload/mask", original_ref='{"filename": "gone.png"}')
    assert refused.value.status == 404
    with pytest.raises(RefusedError, match="original_ref: is nested more than") as refused:
        client.upload(png((0, 0, 0)), "m.png", "/upload/mask", original_ref="[" * 200_000)
    assert refused.value.status == 400
    prefix = graph()
    prefix["save"]["inputs"]["filename_prefix"] = "../../etc/passwd"
    answer = client.queue_prompt(prefix)["prompt_id"]
    ended = client.until_done(answer)[-2]
    assert (ended["type"], ended["data"]["node_id"]) == ("execution_error", "save")
    folder = graph()
    folder["save"]["inputs"]["filename_prefix"] = "runs/%width%x%height%/pic"
    answer = client.queue_prompt(folder)["prompt_id"]
    client.until_done(answer)
    (image,) = client.get(f"/history/{answer}")[answer]["outputs"]["save"]["images"]
    assert image["subfolder"] == "runs/16x8"
    assert client.get_bytes("/view", **image)


def test_what_there_is(connect: Connect, surroundings: Path) -> None:
    client = connect()
    every = client.get("/object_info")
    assert every["SmallSave"]["output_node"] is True
    assert every["SmallPaint"]["python_module"] == "calotype-small-nodes"
    assert client.get("/object_info/Nowhere") == {}
    lora = surroundings / "models" / "loras" / "ink.safetensors"
    lora.parent.mkdir(parents=True, exist_ok=True)
    lora.write_bytes(b"")
    assert client.get("/models/loras") == ["ink.safetensors"]
    assert client.get("/models/checkpoints") == ["m", "emoji"]
    assert "loras" in client.get("/models")
    assert status_of(client, "/models/nowhere") == 404
    assert client.get("/embeddings") == []
    stats = client.get("/system_stats")
    assert stats["system"]["ram_total"] > 0
    assert stats["devices"][0]["name"] == "nothing"


def test_a_picture_damaged_on_disk_is_an_error_until_it_is_given_again(
    connect: Connect, surroundings: Path
) -> None:
    client, given = connect(), png((7, 77, 177))
    client.upload(given, "fading.png")
    (file,) = surroundings.rglob(hashlib.sha256(given).hexdigest())
    file.write_bytes(given[:-1] + b"?")
    with pytest.raises(RefusedError, match=r"fading.png.* is damaged") as refusal:
        client.get_bytes("/view", filename="fading.png", type="input")
    assert (refusal.value.status, json.loads(refusal.value.body)["error"]["code"]) == (500, "damaged")
    client.upload(given, "fading.png")
    assert client.get_bytes("/view", filename="fading.png", type="input") == given
