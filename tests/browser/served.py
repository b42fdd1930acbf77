"""A real deployment of the embedded model for tests of the page, and a browser's visits to it.

Knows nothing of what is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page

import calotype
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import deployment_dir
from tests.polling import until

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE_MS = 60_000
"""Other tests have the machine too."""


@dataclass
class Deployed:
    """A deployment that runs, and what to ask it behind the page's back."""

    url: str
    folder: Path
    models: Path

    def jobs(self) -> list[dict[str, Any]]:
        return list(httpx.get(f"{self.url}/v1/jobs", params={"limit": 200}).json()["jobs"])

    def clear(self) -> None:
        """Stop and forget every job."""
        for job in self.jobs():
            httpx.post(f"{self.url}/v1/jobs/{job['id']}/cancel")
        until(lambda: all(job["ended_at"] for job in self.jobs()), "jobs have ended")
        for job in self.jobs():
            httpx.delete(f"{self.url}/v1/jobs/{job['id']}")


@contextmanager
def deployed(folder: Path, **values: Any) -> Iterator[Deployed]:
    """The embedded model, served with the page that is built."""
    page = Path(calotype.__file__).parent / "resources" / "assets" / "page" / "index.html"
    assert page.is_file(), "the page is not built: run make page"
    plan = {"name": "page", "models": ["emoji"], "devices": ["cpu"], "drain_s": 1.0, **values}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CALOTYPE_STATE", str(folder / "state"))
        patched.setenv("CALOTYPE_MODELS", str(folder / "models"))
        patched.setenv("PYTHONPATH", str(Path(calotype.__file__).parents[1]))
        # Small pictures on a machine that others use are made fastest by one thread.
        patched.setenv("OMP_NUM_THREADS", "1")
        running = deploy(DeploymentConfig.parse(plan))
        try:
            yield Deployed(running.http, deployment_dir("page").folder, folder / "models")
        finally:
            stop(running, at_once=True)


@dataclass
class Visit:
    """Somebody at the page, what the page asked for and what it complained about."""

    page: Page
    url: str
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def go(self, address: str) -> None:
        """To `#/studio` or another room."""
        self.page.goto(f"{self.url}/{address}")

    def field(self, label: str) -> Locator:
        return self.page.get_by_label(label, exact=True)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def keep(self, name: str, *, whole: bool = False) -> None:
        """A screenshot to be looked at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)


def visit(browser: Browser, url: str, width: int, height: int, **options: Any) -> Visit:
    """A browser of its own, without any memory of others."""
    given = {"locale": "en-GB", "color_scheme": "dark", **options}
    context = browser.new_context(viewport={"width": width, "height": height}, **given)
    context.set_default_timeout(PATIENCE_MS)
    visited = Visit(context.new_page(), url)
    visited.page.on("request", lambda request: visited.asked.append(request.url))
    visited.page.on("pageerror", lambda error: visited.said.append(str(error)))
    visited.page.on("console", lambda message: _note(visited, message.type, message.text))
    return visited


def _note(visited: Visit, kind: str, text: str) -> None:
    # The browser itself notes every answer that is an error; these are told on the page.
    if kind in ("error", "warning") and "Failed to load resource" not in text:
        visited.said.append(text)
