"""The graph's room on a real deployment: by hand from nothing to a picture, and what goes wrong."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

import calotype
from calotype.serve.lifecycle.places import running_place
from tests.browser.graphs import PATIENCE_MS, WATCH, Canvas, node, text_to_image

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
LONG = 190
"""Steps that no test waits for."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The embedded model, deployed; its address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALOTYPE_STATE", str(tmp_path_factory.mktemp("state")))
        patch.setenv("OMP_NUM_THREADS", "1")
        calotype.deploy(name="graph", reached={"http_port": 0, "grpc_port": 0}, drain_s=0.0).close()
        _, running = running_place("graph")
        yield running.http
        calotype.undeploy("graph", at_once=True, purge=True)


@pytest.fixture
def open_canvas(browser: Browser, site: str) -> Iterator[Callable[..., Canvas]]:
    contexts = []
    said: list[str] = []

    def opened(width: int = 1500, height: int = 900, **options: object) -> Canvas:
        viewport = {"width": width, "height": height}
        context = browser.new_context(
            viewport=viewport, locale="en-GB", **{"color_scheme": "dark", **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: said.append(str(error)))
        return Canvas(page, site)

    yield opened
    for context in contexts:
        context.close()
    assert said == []


OpenCanvas = Callable[..., Canvas]


def shot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"graph-{name}.png")


def picture_of(canvas: Canvas) -> bytes:
    """What the last node shows, as the server keeps it."""
    shown = canvas.node("SaveImage").locator(".graph-pictures a")
    address = shown.get_attribute("href", timeout=PATIENCE_MS)
    assert address
    with urllib.request.urlopen(address) as answer:
        data: bytes = answer.read()
    return data


def finished(canvas: Canvas, how: str = "Done") -> None:
    expect(canvas.status).to_have_text(how, timeout=PATIENCE_MS)


def test_a_graph_built_by_hand_makes_a_picture(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    page = canvas.page
    canvas.file_menu("Empty graph")
    expect(canvas.nodes).to_have_count(0)
    for words, x, y in (
        ("checkpoint", 30, 300),
        ("text encode prompt", 300, 150),
        ("CLIPTextEncode", 300, 400),
        ("empty latent", 300, 650),
        ("ksampler", 600, 200),
        ("vae decode", 900, 250),
        ("save image", 1150, 250),
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
    expect(canvas.links).to_have_count(9)
    canvas.set(canvas.node("CLIPTextEncode"), "text", "a red apple")
    for name in ("width", "height"):
        canvas.set(latent, name, 64)
    canvas.set(sampler, "steps", 4)
    shot(page, "by-hand")
    page.evaluate(WATCH)
    page.keyboard.press("Control+Enter")
    finished(canvas)
    picture = canvas.node("SaveImage").get_by_role("img", name="Picture 1 made by Save Image")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 64
    shot(page, "made")
    ids = {
        kind: canvas.node(kind).get_attribute("data-node")
        for kind in ("CheckpointLoaderSimple", "KSampler", "VAEDecode", "SaveImage")
    }
    ran = page.evaluate("window.ran")
    assert [one for one in ran if one in ids.values()] == list(ids.values())


def test_the_running_node_is_framed_in_green_and_unchanged_ones_are_dimmed(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    page = canvas.page
    canvas.open_graph(text_to_image(steps=2, seed=1))
    canvas.run()
    finished(canvas)
    canvas.set(canvas.node("KSampler"), "steps", LONG)
    canvas.run()
    sampler = canvas.node("KSampler")
    expect(sampler).to_have_attribute("data-state", "running")
    expect(page.locator('[data-state="running"]')).to_have_count(1)
    green = page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--good')")
    assert Image.new("RGB", (1, 1), green).getpixel((0, 0)) == tuple(
        int(part) for part in sampler.evaluate("n => getComputedStyle(n).borderTopColor.match(/\\d+/g)")
    )
    bar = page.get_by_role("progressbar", name="Progress of KSampler")
    expect(bar).to_have_attribute("max", str(LONG))
    for kind in ("CheckpointLoaderSimple", "CLIPTextEncode", "EmptyLatentImage"):
        expect(canvas.node(kind)).to_have_attribute("data-state", "cached")
        expect(canvas.node(kind).locator(".graph-node-title")).to_have_css("opacity", "0.5")
    expect(sampler.get_by_role("img", name="KSampler at work")).to_be_visible()
    shot(page, "running")
    page.get_by_role("button", name="Cancel", exact=True).click()
    finished(canvas, "Cancelled")
    expect(page.locator('[data-state="running"]')).to_have_count(0)


def test_a_reload_finds_the_run_again(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    page = canvas.page
    canvas.open_graph(text_to_image(steps=LONG, seed=2), "kept.json")
    canvas.run()
    expect(canvas.status).to_contain_text("Running KSampler")
    page.reload()
    expect(canvas.status).to_contain_text("Running KSampler")
    expect(canvas.node("KSampler")).to_have_attribute("data-state", "running")
    expect(page.get_by_label("Name of the graph")).to_have_value("kept")
    page.get_by_role("button", name="Cancel", exact=True).click()
    finished(canvas, "Cancelled")


def test_a_picture_that_is_dropped_makes_itself_again(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    canvas.open_graph(text_to_image(steps=2, seed=2**63 + 3))
    canvas.run()
    finished(canvas)
    first = picture_of(canvas)
    other = open_canvas(color_scheme="light")
    other.drop("apple.png", "image/png", first)
    expect(other.page.get_by_label("Name of the graph")).to_have_value("apple")
    expect(other.nodes).to_have_count(7)
    expect(other.node("KSampler").get_by_label("seed of KSampler").first).to_have_value(str(2**63 + 3))
    other.set(other.node("SaveImage"), "filename_prefix", "again")
    other.run()
    finished(other)
    second = picture_of(other)
    assert first != second
    with Image.open(io.BytesIO(first)) as one, Image.open(io.BytesIO(second)) as two:
        assert one.tobytes() == two.tobytes()
    shot(other.page, "dropped-light")


def test_what_is_wrong_stands_on_its_node_and_in_a_list(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    page = canvas.page
    graph = text_to_image(steps=2)
    del graph["8"]["inputs"]["vae"]
    graph["4"]["inputs"]["ckpt_name"] = "emojy.safetensors"
    canvas.open_graph(graph)
    canvas.run()
    finished(canvas, "Failed")
    expect(canvas.node("VAEDecode").get_by_role("alert")).to_contain_text("vae")
    expect(canvas.node("CheckpointLoaderSimple").get_by_role("alert")).to_contain_text("ckpt_name")
    expect(canvas.node("VAEDecode")).to_have_attribute("data-wrong", "true")
    problems = page.get_by_role("region", name="2 problems")
    expect(problems.get_by_role("listitem")).to_have_count(2)
    shot(page, "problems")
    problems.get_by_role("button", name="VAE Decode").click()
    expect(page.locator(".react-flow__node.selected .graph-node")).to_have_attribute("data-type", "VAEDecode")


def test_what_fails_while_it_runs_stands_on_its_node(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    canvas.open_graph(
        {
            "1": node("CheckpointLoaderSimple", ckpt_name="emoji"),
            "2": node("EmptyLatentImage", width=64, height=64, batch_size=1),
            "3": node("LatentFromBatch", samples=["2", 0], batch_index=0, length=1),
            "4": node("VAEDecode", samples=["3", 0], vae=["1", 2]),
            "5": node("ImageCrop", image=["4", 0], width=16, height=16, x=4000, y=4000),
            "6": node("SaveImage", images=["5", 0], filename_prefix="never"),
        }
    )
    canvas.run()
    finished(canvas, "Failed")
    expect(canvas.page.locator('.graph-node[data-wrong="true"]')).to_have_count(1)
    expect(canvas.page.get_by_role("region", name="1 problem")).to_be_visible()
    shot(canvas.page, "failed")


def test_a_link_of_the_wrong_type_is_refused_and_says_why(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    page = canvas.page
    loader, decoder = canvas.node("CheckpointLoaderSimple"), canvas.node("VAEDecode")
    links = canvas.links.count()
    canvas._hover(loader.locator('[data-handleid="out:0"]'))
    page.mouse.down()
    canvas._hover(decoder.locator('[data-handleid="in:samples"]'), steps=8)
    why = "MODEL does not go into VAE Decode · samples, which takes LATENT."
    expect(page.locator(".graph-refusal")).to_have_text(why)
    shot(page, "refused")
    page.mouse.up()
    expect(page.locator(".graph-notice")).to_contain_text(why)
    assert canvas.links.count() == links
    canvas.link(loader, 0, canvas.node("KSampler"), "model")
    assert canvas.links.count() == links


def test_undo_redo_copy_and_delete_by_keyboard(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
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
    other = page.context.new_page()
    there = Canvas(other, page.url.split("/#")[0])
    there.file_menu("Empty graph")
    expect(there.nodes).to_have_count(0)
    other.keyboard.press("Control+v")
    expect(there.nodes).to_have_count(7)
    expect(there.links).to_have_count(9)
    other.keyboard.press("Control+a")
    other.keyboard.press("Control+g")
    expect(other.get_by_label("Title of the group")).to_have_value("Group")
    other.keyboard.press("f")
    shot(other, "group")


def test_a_source_is_chosen_without_a_mouse(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    page = canvas.page
    canvas.node("VAEDecode").get_by_role("button", name="Input vae").focus()
    page.keyboard.press("Enter")
    page.get_by_role("option", name="Remove the link").click()
    expect(canvas.links).to_have_count(8)
    canvas.node("VAEDecode").get_by_role("button", name="Input vae").focus()
    page.keyboard.press("Enter")
    page.get_by_role("combobox").fill("checkpoint")
    page.keyboard.press("Enter")
    expect(canvas.links).to_have_count(9)


def test_two_hundred_nodes_open_and_only_those_in_sight_are_drawn(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas()
    page = canvas.page
    graph = text_to_image(steps=2)
    for number in range(10, 203):
        above = "3" if number == 10 else str(number - 1)
        graph[str(number)] = node("LatentUpscaleBy", samples=[above, 0], upscale_method="area", scale_by=1.0)
    graph["8"]["inputs"]["samples"] = ["202", 0]
    canvas.open_graph(graph)
    expect(page.locator(".react-flow__minimap-node")).to_have_count(200)
    shot(page, "200-nodes")
    for _ in range(6):
        page.get_by_role("button", name="Zoom In").click()
    expect(canvas.nodes.first).to_be_visible()
    expect.set_options(timeout=PATIENCE_MS)
    page.wait_for_function("document.querySelectorAll('.graph-node').length < 60")
    assert canvas.nodes.count() > 0


def test_it_speaks_chinese_and_fits_a_phone(open_canvas: OpenCanvas) -> None:
    canvas = open_canvas(width=390, height=800, has_touch=True)
    canvas.page.get_by_label("Language").select_option("zh")
    expect(canvas.page.get_by_role("button", name="运行", exact=True)).to_be_visible()
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert canvas.page.evaluate(wide)
    shot(canvas.page, "phone-zh")
