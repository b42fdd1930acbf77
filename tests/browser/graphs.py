"""A page's graph as a hand finds it: adds, links, sets, drops. Knows nothing of what is tested."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, expect

from tests.browser.served import Visit

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
    """A visit to the graph's room."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.page = visit, visit.page
        expect(self.nodes.first).to_be_visible()

    @property
    def nodes(self) -> Locator:
        return self.page.locator(".graph-node")

    @property
    def status(self) -> Locator:
        return self.page.locator(".graph-run").get_by_role("status")

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
        self.carry(source, output, target, name)
        self.page.mouse.up()

    def carry(self, source: Locator, output: int, target: Locator, name: str) -> None:
        """The same, without letting go."""
        self._move_to(source.locator(f'[data-handleid="out:{output}"]'))
        self.page.mouse.down()
        self._move_to(target.locator(f'[data-handleid="in:{name}"]'), steps=8)

    def _move_to(self, handle: Locator, steps: int = 1) -> None:
        box = handle.bounding_box()
        assert box
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=steps)

    def set(self, node: Locator, name: str, value: str | int) -> None:
        """A widget's value, typed."""
        node.locator(f'[aria-label^="{name} of "]').fill(str(value))

    def run(self, ending: str | None = "Done") -> None:
        """And wait for how it ends, unless that is None."""
        self.visit.press("Run")
        if ending is not None:
            expect(self.status).to_have_text(ending)

    def cancel(self) -> None:
        self.visit.press("Cancel")
        expect(self.status).to_have_text("Cancelled")

    def drop(self, name: str, kind: str, content: bytes) -> None:
        """A file, let go over the canvas."""
        stage = self.page.locator(".graph-stage").element_handle()
        self.page.evaluate(DROP, [stage, name, kind, base64.b64encode(content).decode()])

    def drag(self, from_x: float, from_y: float, by_x: float, by_y: float) -> None:
        """From a place on the screen."""
        self.page.mouse.move(from_x, from_y)
        self.page.mouse.down()
        self.page.mouse.move(from_x + by_x, from_y + by_y, steps=6)
        self.page.mouse.up()

    def saved(self) -> dict[str, Any]:
        """What the menu's Save writes."""
        with self.page.expect_download() as download:
            self.file_menu("Save (editor format)")
        return dict(json.loads(Path(download.value.path()).read_bytes()))

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


def many_graphs(nodes: int) -> dict[str, Any]:
    """The default graph over and over, with upscalers for what is left of the number."""
    graph: dict[str, Any] = {}
    for copy in range(nodes // 7):
        for name, one in text_to_image(steps=2).items():
            inputs = {
                key: [f"{copy}{value[0]}", value[1]] if isinstance(value, list) else value
                for key, value in one["inputs"].items()
            }
            graph[f"{copy}{name}"] = {**one, "inputs": inputs}
    for extra in range(nodes % 7):
        graph[f"9{extra}0"] = node("ImageScaleBy", image=["08", 0], upscale_method="area", scale_by=1.0)
    return graph


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}
