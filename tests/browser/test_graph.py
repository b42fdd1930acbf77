"""The graph's room on a real deployment: by hand from nothing to a picture, and what goes wrong."""

from __future__ import annotations

import io

import httpx
from PIL import Image, ImageColor
from playwright.sync_api import expect

from tests.browser.conftest import Visitor
from tests.browser.graphs import WATCH, Canvas, many_graphs, node, text_to_image
from tests.browser.served import Visit
from tests.browser.test_rooms import violations

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
    expect(canvas.node("CalotypeComparePresets").get_by_role("alert")).to_contain_text("'fats' is not there")
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
    page.wait_for_function("document.querySelectorAll('.graph-node').length < 60")
    expect(canvas.nodes.first).to_be_visible()


def test_it_speaks_chinese_and_fits_a_phone(visitor: Visitor) -> None:
    canvas = Canvas(visitor("#/graph", width=390, height=800, has_touch=True, locale="zh-CN"))
    expect(canvas.page.get_by_role("button", name="运行", exact=True)).to_be_visible()
    canvas.page.get_by_role("button", name="添加节点").click()
    canvas.page.get_by_role("combobox", name="按名称查找节点").fill("lora")
    canvas.visit.keep("graph-phone-zh")
    canvas.page.keyboard.press("Enter")
    expect(canvas.node("LoraLoader")).to_be_visible()
