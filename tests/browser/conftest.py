"""A browser for whoever has a page to look at: Chromium without a network, which notes what pages ask for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.served import PATIENCE_MS, Deployed, Visit, deployed, visit
from tests.unit.bench.report.samples import everything

SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


# Not for the whole session: while it is open, other tests of the process cannot run an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a file; scripts/test-tools installs it."""
    program = shutil.which("chromium")
    assert program, "no chromium here: run scripts/test-tools"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(SWITCHES))
        yield running
        running.close()


@dataclass
class Seen:
    """A page, what it asked for and what it complained about."""

    page: Page
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


Opener = Callable[..., Seen]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """`opened(file, width=360, color_scheme="dark")`: a page of a file, with the network cut off."""
    contexts = []

    def open_page(file: Path, width: int = 1280, **options: Any) -> Seen:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        contexts.append(context)
        seen = Seen(context.new_page())
        seen.page.on("request", lambda request: seen.asked.append(request.url))
        seen.page.on("console", lambda message: seen.said.append(message.text))
        seen.page.on("pageerror", lambda error: seen.said.append(str(error)))
        seen.page.goto(file.resolve().as_uri())
        return seen

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The embedded model behind the page, with some measurements; one for all tests of a process."""
    folder = tmp_path_factory.mktemp("deployment")
    everything(folder / "records")
    with deployed(folder, records=[folder / "records"]) as running:
        yield running


Visitor = Callable[..., Visit]


@pytest.fixture
def visitor(browser: Browser, deployment: Deployed) -> Iterator[Visitor]:
    """`visitor(width=375, locale="zh-CN")`: the page of a deployment without jobs."""
    expect.set_options(timeout=PATIENCE_MS)
    deployment.clear()
    visits: list[Visit] = []

    def arrive(room: str = "#/studio", width: int = 1440, height: int = 900, **options: Any) -> Visit:
        visits.append(visit(browser, deployment.url, width, height, **options))
        visits[-1].go(room)
        return visits[-1]

    yield arrive
    for one in visits:
        one.page.context.close()
