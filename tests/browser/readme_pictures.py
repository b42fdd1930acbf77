"""Makes the pictures of the page in README: `python -m tests.browser.readme_pictures`. No test needs it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.conftest import SWITCHES
from tests.browser.graphs import Canvas
from tests.browser.served import PATIENCE_MS, Deployed, Visit, deployed, visit
from tests.polling import until

FOLDER = Path(__file__).parents[2] / "docs" / "images"
WIDTH, HEIGHT = 1280, 760
MOST_BYTES = 150_000
PROMPTS = (
    "a hamburger, noto style, on a light blue background",
    "a rocket, fluent style, on a white background",
    "a dog face, noto style, on a yellow background",
    "an octopus, fluent style, on a white background",
    "a sunflower, noto style, on a white background",
    "a red apple, fluent style, on a light green background",
    "a party popper, noto style, on a white background",
    "a whale, fluent style, on a light blue background",
    "an orange heart, noto style, on a light blue background",
)
STEPS = 60


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with (
        tempfile.TemporaryDirectory() as folder,
        deployed(Path(folder)) as running,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(SWITCHES))
        studio(browser, running)
        graph(browser, running)
        browser.close()


def arrived(browser: Browser, running: Deployed, room: str) -> Visit:
    found = visit(browser, running.url, WIDTH, HEIGHT, color_scheme="light")
    found.go(room)
    return found


def studio(browser: Browser, running: Deployed) -> None:
    for number, prompt in enumerate(PROMPTS):
        request = {"prompt": prompt, "steps": 20, "cfg": 4.0, "seed": 7 + number}
        httpx.post(f"{running.url}/v1/jobs", json={"request": request}).raise_for_status()
    found = arrived(browser, running, "#/studio")
    expect(found.page.locator(".gallery img")).to_have_count(len(PROMPTS), timeout=10 * PATIENCE_MS)
    found.press("Use these settings")
    found.page.reload()
    expect(found.page.locator(".finished img")).to_be_visible()
    until(
        lambda: bool(found.page.evaluate("[...document.images].every(one => one.complete)")), "all is there"
    )
    keep(found, "studio")


def graph(browser: Browser, running: Deployed) -> None:
    found = arrived(browser, running, "#/graph")
    canvas = Canvas(found)
    found.field("Name of the graph").fill("hamburger")
    canvas.set(canvas.node("CLIPTextEncode"), "text", PROMPTS[0])
    canvas.set(canvas.node("KSampler"), "cfg", 4)
    # What comes before the sampler is known by then, and dimmed.
    canvas.set(canvas.node("KSampler"), "steps", 2)
    canvas.run()
    canvas.set(canvas.node("KSampler"), "steps", STEPS)
    canvas.run(None)
    done = "document.querySelector('.graph-progress')?.value ?? 0"
    until(lambda: found.page.evaluate(done) > 0.8 * STEPS, "most is done", patience_s=10 * PATIENCE_MS / 1000)
    keep(found, "graph")


def keep(found: Visit, name: str) -> None:
    """Small enough for a page that many load."""
    path = FOLDER / f"{name}.png"
    found.page.screenshot(path=path)
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    # Shades that no eye tells apart are what makes a file of a screen large.
    for shade in (1, 2, 4, 8):
        picture.point([min(255, round(value / shade) * shade) for value in range(256)] * 3).save(
            path, optimize=True
        )
        if path.stat().st_size < MOST_BYTES:
            return


if __name__ == "__main__":
    main()
