"""The graph's room on a real deployment: by hand from nothing to a picture, and what goes wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image, ImageChops, ImageColor
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import FloatRect, Locator, expect

from calotype.workflow.import_editor import to_prompt
from calotype.workflow.registry import load_registry
from tests.browser.conftest import Visitor
from tests.browser.graphs import WATCH, Canvas, many_graphs, node, text_to_image
from tests.browser.served import Deployed, Visit
from tests.browser.test_rooms import violations
from tests.polling import until

SUBGRAPHS = Path(__file__).parents[2] / "web" / "src" / "graph" / "testing" / "subgraphs.json"
LONG = 190
"""Steps that no test waits for."""


def picture_of(canvas: Canvas) -> bytes:
    """What the last node shows, as the server keeps it."""
    shown = canvas.node("SaveImage").locator(".graph-pictures a")
    address = shown.get_attribute("href")
    assert address
    return httpx.get(address).content


def test_a_graph_built_by_hand_makes_a_picture(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    canvas.file_menu("Empty graph")
    expect(canvas.nodes).to_have_count(0)
    for words, x, y in (
        ("checkpoint", 20, 300),
        ("text encode prompt", 305, 150),
        ("CLIPTextEncode", 305, 400),
        ("empty latent", 305, 650),
        ("ksampler", 600, 200),
        ("vae decode", 885, 250),
        ("save image", 1120, 450),
    ):
        canvas.add(words, x, y)
    loader, sampler = canvas.node("CheckpointLoaderSimple"), canvas.node("KSampler")
    decoder, latent = canvas.node("VAEDecode"), canvas.node("EmptyLatentImage")
    for nth, name in enumerate(("positive", "negative")):
        canvas.link(loader, 1, canvas.node("CLIPTextEncode", nth), "clip")
        canvas.link(canvas.node("CLIPTextEncode", nth), 0, sampler, name)
    canvas.link(loader, 0, sampler, "model")
    canvas.link(latent, 0, sampler, "latent_image")
    canvas.link(sampler, 0, decoder, "samples")
    canvas.link(loader, 2, decoder, "vae")
    canvas.link(decoder, 0, canvas.node("SaveImage"), "images")
    canvas.visit.keep("graph-by-hand")
    expect(canvas.links).to_have_count(9)
    canvas.set(canvas.node("CLIPTextEncode"), "text", "a red apple")
    for name in ("width", "height"):
        canvas.set(latent, name, 64)
    canvas.set(sampler, "steps", 4)
    canvas.visit.keep("graph-by-hand")
    page.evaluate(WATCH)
    page.keyboard.press("Control+Enter")
    expect(canvas.status).to_have_text("Done")
    picture = canvas.node("SaveImage").get_by_role("img", name="Picture 1 made by Save Image")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 64
    canvas.visit.keep("graph-made")
    ids = {
        kind: canvas.node(kind).get_attribute("data-node")
        for kind in ("CheckpointLoaderSimple", "KSampler", "VAEDecode", "SaveImage")
    }
    ran = page.evaluate("window.ran")
    assert [one for one in ran if one in ids.values()] == list(ids.values())


def test_the_running_node_is_framed_in_green_and_unchanged_ones_are_dimmed(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    canvas.open_graph(text_to_image(steps=2, seed=1))
    canvas.run()
    canvas.set(canvas.node("KSampler"), "steps", LONG)
    canvas.run(None)
    sampler = canvas.node("KSampler")
    expect(sampler).to_have_attribute("data-state", "running")
    expect(page.locator('[data-state="running"]')).to_have_count(1)
    green = page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--good')")
    expect(sampler).to_have_css("border-top-color", f"rgb{ImageColor.getrgb(green)}")
    bar = page.get_by_role("progressbar", name="Progress of KSampler")
    expect(bar).to_have_attribute("max", str(LONG))
    for kind in ("CheckpointLoaderSimple", "CLIPTextEncode", "EmptyLatentImage"):
        expect(canvas.node(kind)).to_have_attribute("data-state", "cached")
        expect(canvas.node(kind).locator(".graph-node-title")).to_have_css("opacity", "0.5")
    expect(sampler.get_by_role("img", name="KSampler at work")).to_be_visible()
    canvas.visit.keep("graph-running")
    canvas.cancel()
    expect(page.locator('[data-state="running"]')).to_have_count(0)


def test_a_reload_finds_the_run_again(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    canvas.open_graph(text_to_image(steps=LONG, seed=2), "kept.json")
    canvas.run(None)
    expect(canvas.status).to_contain_text("Running KSampler")
    page.reload()
    expect(canvas.status).to_contain_text("Running KSampler")
    expect(canvas.node("KSampler")).to_have_attribute("data-state", "running")
    expect(page.get_by_label("Name of the graph")).to_have_value("kept")
    canvas.cancel()


def test_a_picture_that_is_dropped_makes_itself_again(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    canvas.open_graph(text_to_image(steps=2, seed=2**63 + 3))
    canvas.run()
    first = picture_of(canvas)
    other = Canvas(visitor("#/graph", color_scheme="light"))
    other.drop("apple.png", "image/png", first)
    expect(other.page.get_by_label("Name of the graph")).to_have_value("apple")
    expect(other.nodes).to_have_count(7)
    expect(other.page.get_by_role("spinbutton", name="seed of KSampler")).to_have_value(str(2**63 + 3))
    other.set(other.node("SaveImage"), "filename_prefix", "again")
    other.run()
    second = picture_of(other)
    assert first != second
    with Image.open(io.BytesIO(first)) as one, Image.open(io.BytesIO(second)) as two:
        assert one.tobytes() == two.tobytes()
    other.visit.keep("graph-dropped-light")


def box_of(shown: Locator) -> FloatRect:
    box = shown.bounding_box()
    assert box
    return box


def carrying(kind: str, graph: dict[str, Any]) -> bytes:
    """A picture as other programs save it, with a graph hidden in its own way."""
    text, buffer = json.dumps(graph), io.BytesIO()
    more: dict[str, Any] = {}
    if kind == "PNG":
        more["pnginfo"] = PngInfo()
        more["pnginfo"].add_text("prompt", text, zip=True)
    else:
        more["exif"] = Image.Exif()
        more["exif"][0x0110] = f"prompt:{text}"
    Image.new("RGB", (8, 8)).save(buffer, kind, **more)
    return buffer.getvalue()


def test_pictures_of_other_programs_open(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    for number, (kind, name) in enumerate(
        (("WEBP", "web.webp"), ("PNG", "packed.png"), ("JPEG", "photo.jpg"))
    ):
        canvas.drop(name, f"image/{kind.lower()}", carrying(kind, text_to_image(steps=2, seed=40 + number)))
        expect(canvas.page.get_by_label("Name of the graph")).to_have_value(name.partition(".")[0])
        seed = canvas.page.get_by_role("spinbutton", name="seed of KSampler")
        expect(seed).to_have_value(str(40 + number))
    plain = io.BytesIO()
    Image.new("RGB", (8, 8)).save(plain, "WEBP")
    canvas.drop("plain.webp", "image/webp", plain.getvalue())
    expect(canvas.page.locator(".graph-notice")).to_contain_text("plain.webp carries no graph")


def test_subgraphs_are_shown_entered_run_and_kept(visitor: Visitor, deployment: Deployed) -> None:
    canvas = Canvas(visitor("#/graph", color_scheme="light"))
    page = canvas.page
    file = json.loads(SUBGRAPHS.read_text("utf-8"))
    canvas.open_graph(file, "parts.json")
    expect(canvas.nodes).to_have_count(4)
    outer = page.locator('[data-node="12"]')
    expect(outer.get_by_role("textbox", name="text of Words to latent")).to_have_value("a red apple")
    page.evaluate(WATCH)
    canvas.run()
    # While nodes inside run, the frame is around the one that holds them.
    ran = page.evaluate("window.ran")
    assert [one for one in ran if one in ("12", "8", "9")] == ["12", "8", "9"]
    assert page.locator('.graph-node[data-wrong="true"]').count() == 0
    canvas.visit.keep("graph-subgraphs")
    (ended,) = httpx.get(f"{deployment.url}/history").json().values()
    # The server unpacks such files by code of its own.
    assert ended["prompt"][2] == to_prompt(file, load_registry())
    page.get_by_role("button", name="Open the subgraph Words to latent").click()
    expect(canvas.nodes).to_have_count(6)
    page.locator('[data-node="2"]').locator(".graph-node-name").dblclick()
    crumbs = page.get_by_role("navigation", name="Where in the graph")
    expect(crumbs.get_by_role("listitem")).to_have_text(["Whole graph", "Words to latent", "Sample"])
    canvas.set(canvas.node("KSampler"), "steps", 3)
    assert violations(canvas.visit) == []
    canvas.visit.keep("graph-inside")
    saved = canvas.saved()
    file["definitions"]["subgraphs"][1]["nodes"][0]["widgets_values"][2] = 3
    assert to_prompt(saved, load_registry()) == to_prompt(file, load_registry())
    assert [one["groups"] for one in saved["definitions"]["subgraphs"]] == [
        one["groups"] for one in file["definitions"]["subgraphs"]
    ]
    crumbs.get_by_role("button", name="Whole graph").click()
    expect(canvas.nodes).to_have_count(4)


def test_a_picture_of_the_studio_opens_as_the_graph_that_makes_it(
    visitor: Visitor, deployment: Deployed
) -> None:
    request = {"prompt": "a red apple", "width": 64, "height": 64, "steps": 3, "cfg": 4.0, "seed": 2**63 + 1}
    job = httpx.post(f"{deployment.url}/v1/jobs?wait=true", json={"request": request}, timeout=60).json()
    visit = visitor()
    visit.page.get_by_role("link", name="Open in Graph").click()
    canvas = Canvas(visit)
    expect(visit.page.get_by_role("spinbutton", name="seed of KSampler")).to_have_value(str(2**63 + 1))
    canvas.run()
    made = httpx.get(f"{deployment.url}/v1/jobs/{job['id']}/pictures/0").content
    with Image.open(io.BytesIO(made)) as one, Image.open(io.BytesIO(picture_of(canvas))) as two:
        difference = ImageChops.difference(one.convert("RGB"), two.convert("RGB"))
    # Nodes cut colours off where the studio rounds them.
    assert max(high for _, high in difference.getextrema()) <= 2  # type: ignore[misc]
    visit.page.reload()
    expect(canvas.nodes).to_have_count(7)
    assert visit.page.url.endswith("#/graph")


def test_a_picture_is_uploaded_into_a_node(visitor: Visitor, tmp_path: Path) -> None:
    given = tmp_path / "blue sky.png"
    Image.new("RGB", (16, 8), (40, 90, 200)).save(given)
    canvas = Canvas(visitor("#/graph"))
    canvas.open_graph(
        {
            "1": node("LoadImage", image=""),
            "2": node("ImageInvert", image=["1", 0]),
            "9": node("SaveImage", images=["2", 0], filename_prefix="inverted"),
        }
    )
    canvas.node("LoadImage").locator('input[type="file"]').set_input_files(given)
    expect(canvas.node("LoadImage").get_by_role("img", name="The picture blue sky.png")).to_be_visible()
    canvas.run()
    with Image.open(io.BytesIO(picture_of(canvas))) as made:
        assert made.size == (16, 8)
        # Nodes cut off what is less than a whole shade.
        assert made.convert("RGB").getpixel((0, 0)) == pytest.approx((215, 165, 55), abs=1)
    canvas.visit.keep("graph-upload")


def test_nodes_are_resized_and_groups_take_along_what_is_in_them(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    sampler = canvas.node("KSampler")
    sampler.locator(".graph-node-title").click()
    before, handle = box_of(sampler), box_of(page.locator(".graph-resize"))
    canvas.drag(handle["x"] + 4, handle["y"] + 4, 60, 30)
    wide = box_of(sampler)
    assert wide["width"] == pytest.approx(before["width"] + 60, abs=12)
    page.keyboard.press("Control+g")
    frame = page.locator(".graph-group-title")
    title, other = box_of(frame), box_of(canvas.node("VAEDecode"))
    # Beside the field for the title.
    canvas.drag(title["x"] + title["width"] - 6, title["y"] + 6, -50, 40)
    moved, there = box_of(sampler), box_of(frame)
    assert there["x"] < title["x"] - 30
    by = (there["x"] - title["x"], there["y"] - title["y"])
    assert (moved["x"] - wide["x"], moved["y"] - wide["y"]) == pytest.approx(by, abs=1)
    assert box_of(canvas.node("VAEDecode")) == other
    page.keyboard.press("Control+z")
    until(lambda: box_of(sampler)["x"] == pytest.approx(wide["x"], abs=2), "it is back")


def test_what_is_wrong_stands_on_its_node_and_in_a_list(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    graph = text_to_image(steps=2)
    del graph["8"]["inputs"]["vae"]
    graph["4"]["inputs"]["ckpt_name"] = "emojy.safetensors"
    canvas.open_graph(graph)
    canvas.run("Failed")
    expect(canvas.node("VAEDecode").get_by_role("alert")).to_contain_text("vae")
    expect(canvas.node("CheckpointLoaderSimple").get_by_role("alert")).to_contain_text("ckpt_name")
    expect(canvas.node("VAEDecode")).to_have_attribute("data-wrong", "true")
    problems = page.get_by_role("region", name="2 problems")
    expect(problems.get_by_role("listitem")).to_have_count(2)
    assert violations(canvas.visit) == []
    canvas.visit.keep("graph-problems")
    problems.get_by_role("button", name="VAE Decode").click()
    expect(page.locator(".react-flow__node.selected .graph-node")).to_have_attribute("data-type", "VAEDecode")


def test_what_fails_while_it_runs_stands_on_its_node(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    graph = text_to_image(steps=2)
    compared = {key: value for key, value in graph["3"]["inputs"].items() if key != "model"}
    graph["3"] = node(
        "CalotypeComparePresets", model=["4", 0], vae=["4", 2], presets="baseline, fats", **compared
    )
    del graph["8"]
    graph["9"]["inputs"]["images"] = ["3", 1]
    canvas.open_graph(graph)
    canvas.run("Failed")
    expect(canvas.page.locator('.graph-node[data-wrong="true"]')).to_have_count(1)
    expect(canvas.node("CalotypeComparePresets").get_by_role("alert")).to_contain_text(
        "'fats' does not exist"
    )
    expect(canvas.page.get_by_role("region", name="1 problem")).to_be_visible()
    canvas.visit.keep("graph-failed")


def test_a_link_of_the_wrong_type_is_refused_and_says_why(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    loader, decoder = canvas.node("CheckpointLoaderSimple"), canvas.node("VAEDecode")
    links = canvas.links.count()
    canvas.carry(loader, 0, decoder, "samples")
    why = "MODEL does not go into VAE Decode · samples, which takes LATENT."
    expect(page.locator(".graph-refusal")).to_have_text(why)
    canvas.visit.keep("graph-refused")
    page.mouse.up()
    expect(page.locator(".graph-notice")).to_contain_text(why)
    assert canvas.links.count() == links
    canvas.link(loader, 0, canvas.node("KSampler"), "model")
    assert canvas.links.count() == links


def test_undo_redo_copy_and_delete_by_keyboard(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    canvas.node("KSampler").locator(".graph-node-title").click()
    page.keyboard.press("Delete")
    expect(canvas.nodes).to_have_count(6)
    expect(canvas.links).to_have_count(4)
    page.keyboard.press("Control+z")
    expect(canvas.nodes).to_have_count(7)
    expect(canvas.links).to_have_count(9)
    page.keyboard.press("Control+y")
    expect(canvas.nodes).to_have_count(6)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+c")
    other = Visit(page.context.new_page(), canvas.visit.url)
    other.go("#/graph")
    there = Canvas(other)
    there.file_menu("Empty graph")
    expect(there.nodes).to_have_count(0)
    other.page.keyboard.press("Control+v")
    other.page.keyboard.press("Control+g")
    other.page.keyboard.press("f")
    expect(there.nodes).to_have_count(7)
    expect(there.links).to_have_count(9)
    expect(other.page.get_by_label("Title of the group")).to_have_value("Group")
    other.keep("graph-group")


def test_a_source_is_chosen_without_a_mouse(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    canvas.node("VAEDecode").get_by_role("button", name="Input vae").focus()
    page.keyboard.press("Enter")
    page.get_by_role("option", name="Remove the link").click()
    expect(canvas.links).to_have_count(8)
    canvas.node("VAEDecode").get_by_role("button", name="Input vae").focus()
    page.keyboard.press("Enter")
    page.get_by_role("combobox", name="Find a node by name").fill("checkpoint")
    page.keyboard.press("Enter")
    expect(canvas.links).to_have_count(9)


def test_two_hundred_nodes_open_and_only_those_in_sight_are_drawn(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph"))
    page = canvas.page
    graph = many_graphs(200)
    canvas.open_graph(graph)
    expect(page.locator(".react-flow__minimap-node")).to_have_count(200)
    canvas.visit.keep("graph-200-nodes")
    expect(canvas.nodes).to_have_count(200)
    for _ in range(8):
        page.get_by_role("button", name="Zoom In").click()
    until(lambda: canvas.nodes.count() < 60, "what is out of sight is not drawn")
    expect(canvas.nodes.first).to_be_visible()


def test_it_speaks_chinese_and_fits_a_phone(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph", width=390, height=800, has_touch=True, locale="zh-CN"))
    expect(canvas.page.get_by_role("button", name="运行", exact=True)).to_be_visible()
    canvas.page.get_by_role("button", name="添加节点").click()
    canvas.page.get_by_role("combobox", name="按名称查找节点").fill("lora")
    canvas.visit.keep("graph-phone-zh")
    canvas.page.keyboard.press("Enter")
    expect(canvas.node("LoraLoader")).to_be_visible()
