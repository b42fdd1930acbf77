"""A page's graph as a hand finds it: adds, links, sets, drops. Knows nothing of what is tested."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Locator, Page, expect

PATIENCE_MS = 90_000

WATCH = """
() => {
  window.ran = [];
  const note = (element) => {
    const [id, state] = [element.dataset.node, element.dataset.state];
    if (state === "running" && window.ran.at(-1) !== id) window.ran.push(id);
  };
  new MutationObserver((changes) => changes.forEach((change) => note(change.target)))
    .observe(document.body, { subtree: true, attributeFilter: ["data-state"] });
}
"""

DROP = """
([element, name, kind, text]) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type: kind }));
  for (const type of ["dragover", "drop"]) {
    element.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: carried }));
  }
}
"""


class Canvas:
    """One page with its graph's room open."""

    def __init__(self, page: Page, site: str) -> None:
        self.page = page
        page.goto(f"{site}/#/graph")
        expect(self.nodes.first).to_be_visible(timeout=PATIENCE_MS)

    @property
    def nodes(self) -> Locator:
        return self.page.locator(".graph-node")

    @property
    def status(self) -> Locator:
        return self.page.get_by_role("status")

    @property
    def links(self) -> Locator:
        return self.page.locator(".react-flow__edge")

    def node(self, kind: str, nth: int = 0) -> Locator:
        """A node by what the server calls its kind."""
        return self.page.locator(f'.graph-node[data-type="{kind}"]').nth(nth)

    def file_menu(self, entry: str) -> None:
        self.page.get_by_text("File", exact=True).click()
        self.page.get_by_role("button", name=entry).click()

    def add(self, words: str, x: float, y: float) -> None:
        """Double click, type, Enter."""
        before = self.nodes.count()
        self.page.mouse.dblclick(x, y)
        self.page.get_by_role("combobox", name="Find a node by name").fill(words)
        self.page.keyboard.press("Enter")
        expect(self.nodes).to_have_count(before + 1)

    def link(self, source: Locator, output: int, target: Locator, name: str) -> None:
        """Drag from an output to an input."""
        self._hover(source.locator(f'[data-handleid="out:{output}"]'))
        self.page.mouse.down()
        self._hover(target.locator(f'[data-handleid="in:{name}"]'), steps=8)
        self.page.mouse.up()

    def _hover(self, handle: Locator, steps: int = 1) -> None:
        box = handle.bounding_box()
        assert box
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=steps)

    def set(self, node: Locator, name: str, value: str | int) -> None:
        """A widget's value, typed."""
        node.get_by_label(f"{name} of ").first.fill(str(value))

    def run(self) -> None:
        self.page.get_by_role("button", name="Run", exact=True).click()

    def drop(self, name: str, kind: str, content: bytes) -> None:
        """A file, let go over the canvas."""
        stage = self.page.locator(".graph-stage").element_handle()
        self.page.evaluate(DROP, [stage, name, kind, base64.b64encode(content).decode()])

    def open_graph(self, graph: Mapping[str, Any], name: str = "graph.json") -> None:
        self.drop(name, "application/json", json.dumps(graph).encode())


def text_to_image(steps: int, size: int = 64, seed: int = 5) -> dict[str, Any]:
    """The default graph in API format."""
    return {
        "3": node(
            "KSampler",
            model=["4", 0],
            positive=["6", 0],
            negative=["7", 0],
            latent_image=["5", 0],
            seed=seed,
            steps=steps,
            cfg=4.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "4": node("CheckpointLoaderSimple", ckpt_name="emoji"),
        "5": node("EmptyLatentImage", width=size, height=size, batch_size=1),
        "6": node("CLIPTextEncode", text="a red apple", clip=["4", 1]),
        "7": node("CLIPTextEncode", text="", clip=["4", 1]),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", images=["8", 0], filename_prefix="graph"),
    }


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}
