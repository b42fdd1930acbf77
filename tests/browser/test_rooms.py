"""What holds in every room of the page: languages, widths, themes, keys, names for all controls."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from calotype.serve.api_keys import ApiKeys
from tests.browser.conftest import Visitor
from tests.browser.proxy import proxied
from tests.browser.served import PATIENCE_MS, Deployed, Visit, deployed, visit
from tests.polling import until

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
ROOMS = {"#/studio": "Studio", "#/graph": "Graph", "#/measure": "Measurements", "#/system": "System"}
CHINESE = {"#/studio": "创作", "#/graph": "节点图", "#/measure": "测量记录", "#/system": "系统"}
SERIOUS = {"serious", "critical"}


def violations(visit: Visit) -> list[str]:
    """What keeps people out, by a judge of its own."""
    visit.page.evaluate(AXE.read_text("utf-8"))
    found = visit.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:150]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_everybody_can_use_every_room(visitor: Visitor, scheme: str) -> None:
    visit = visitor(color_scheme=scheme)
    for room, name in ROOMS.items():
        visit.go(room)
        expect(visit.page.get_by_role("heading", name=name, level=1, exact=True)).to_be_attached()
        if room == "#/measure":
            expect(visit.page.get_by_role("row").nth(1)).to_be_visible()
        if room == "#/system":
            expect(visit.page.get_by_role("button", name="Inspect emoji")).to_be_visible()
        assert violations(visit) == [], room
        visit.keep(f"{name.lower()}-{scheme}", whole=room == "#/system")
    assert visit.said == []


@pytest.mark.parametrize(("locale", "scheme"), [("en-GB", "dark"), ("zh-CN", "light")])
def test_rooms_fit_a_phone(visitor: Visitor, locale: str, scheme: str) -> None:
    visit = visitor(width=375, height=812, has_touch=True, locale=locale, color_scheme=scheme)
    names = ROOMS if locale == "en-GB" else CHINESE
    for room, name in names.items():
        visit.go(room)
        expect(visit.page.get_by_role("heading", name=name, level=1, exact=True)).to_be_attached()
        if room == "#/system":
            expect(visit.page.get_by_role("button", name=re.compile("emoji"))).not_to_have_count(0)
        sticks_out = visit.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert sticks_out <= 0, room
        # Both colour schemes of the wide page are judged above, in English.
        assert locale == "en-GB" or violations(visit) == [], room
        visit.keep(f"phone-{ROOMS[room].lower()}-{locale[:2]}", whole=room != "#/graph")


def test_every_address_of_a_room_shows_that_room(visitor: Visitor) -> None:
    visit = visitor()
    for room, name in ROOMS.items():
        for end in ("", "/", "/some//where", "/a%2Fb/?x=1"):
            visit.page.goto(f"{visit.url}/{room.removeprefix('#/')}{end}")
            expect(visit.page.get_by_role("heading", name=name, level=1, exact=True)).to_be_attached()
            assert visit.page.evaluate("location.pathname") == "/"
    # The other rooms are on the same page: nothing is loaded again.
    visit.page.evaluate("window.stays = true")
    visit.page.get_by_role("link", name="Studio", exact=True).click()
    expect(visit.page.get_by_role("button", name="Generate", exact=True)).to_be_visible()
    assert visit.page.evaluate("window.stays")
    assert visit.said == []


def test_the_page_works_below_the_prefix_of_a_proxy(visitor: Visitor, deployment: Deployed) -> None:
    with proxied(deployment.url, "/paint") as outside:
        visit = visitor()
        for address in ("/", "/system", "/system/", "/system/some/where"):
            visit.page.goto(f"{outside}/paint{address}")
            if address == "/":
                visit.page.get_by_role("link", name="System", exact=True).click()
            # The program, its style and what it fetches all come through the proxy.
            expect(visit.page.get_by_role("button", name="Inspect emoji")).to_be_visible()
            assert (
                visit.page.evaluate("location.href")
                == f"{outside}/paint/#/{address[1:].rstrip('/') or 'system'}"
            )
        assert visit.said == []


def test_the_page_speaks_chinese(visitor: Visitor) -> None:
    visit = visitor(locale="zh-CN")
    expect(visit.page.get_by_role("button", name="生成", exact=True)).to_be_visible()
    expect(visit.page.get_by_text("没有等待的任务。")).to_be_visible()
    assert visit.page.evaluate("document.documentElement.lang") == "zh-Hans"
    visit.keep("studio-chinese")
    visit.page.get_by_label("语言").select_option("en")
    expect(visit.page.get_by_role("button", name="Generate", exact=True)).to_be_visible()
    visit.page.reload()
    expect(visit.page.get_by_role("button", name="Generate", exact=True)).to_be_visible()


def test_the_theme_follows_the_system_until_it_is_chosen(visitor: Visitor) -> None:
    visit = visitor(color_scheme="light")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = visit.page.evaluate(ground)
    visit.page.emulate_media(color_scheme="dark")
    dark = visit.page.evaluate(ground)
    assert dark != light
    visit.field("Theme").select_option("light")
    assert visit.page.evaluate(ground) == light
    visit.page.reload()
    assert visit.page.evaluate(ground) == light


def test_measurements_are_filtered_sorted_and_drawn(visitor: Visitor) -> None:
    visit = visitor("#/measure")
    page = visit.page
    counted = page.get_by_text("of 80 measurements")
    expect(counted).to_contain_text("80 of 80")
    visit.field("Run").select_option("shapes")
    expect(counted).to_contain_text("14 of 80")
    visit.field("Search points, models, devices").fill("no such thing")
    expect(counted).to_contain_text("0 of 80")
    visit.field("Search points, models, devices").fill("")
    page.get_by_role("button", name="Sort by Samples/s").click()
    cells = page.locator(".records tbody tr td:nth-child(6)")
    rates = [float(text) for text in cells.all_inner_texts() if text != "–"]
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) > 1
    page.get_by_role("button", name="Details of").first.click()
    expect(page.locator(".record")).to_contain_text("calotype bench")
    visit.field("Show").select_option("median")
    drawn = page.locator(".plot circle, .bars li")
    assert drawn.count() > 1
    visit.keep("measure-shapes")


def test_the_system_is_laid_open(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor("#/system")
    page = visit.page
    workers = page.get_by_role("region", name="Workers")
    for said in ("ready", "cpu", "fast", "emoji"):
        expect(workers).to_contain_text(said)
    expect(page.get_by_role("region", name="Metrics")).to_contain_text("Jobs accepted")
    page.get_by_role("button", name="Inspect emoji").click()
    found = page.get_by_role("region", name="What emoji is")
    # A process of its own reads the file, and has to start first.
    expect(found).to_contain_text("Parameters", timeout=3 * PATIENCE_MS)
    visit.keep("system-inspected", whole=True)


def test_a_room_whose_program_does_not_arrive_leaves_the_others(visitor: Visitor) -> None:
    visit = visitor()
    visit.field("Prompt").fill("a red apple")
    # As after an update of the server, whose page has other files.
    visit.page.route("**/assets/GraphTab-*", lambda route: route.abort())
    visit.page.get_by_role("link", name="Graph", exact=True).click()
    expect(visit.page.get_by_role("alert")).to_contain_text("This room could not be loaded")
    visit.keep("room-missing")
    visit.page.get_by_role("link", name="Studio", exact=True).click()
    expect(visit.field("Prompt")).to_have_value("a red apple")
    visit.page.unroute("**/assets/GraphTab-*")
    visit.page.get_by_role("link", name="Graph", exact=True).click()
    visit.press("Reload the page")
    expect(visit.page.locator(".graph-node").first).to_be_visible()


def test_a_key_is_asked_for_where_the_server_wants_one(browser: Browser, tmp_path: Path) -> None:
    """On a deployment of its own: a server that has had a key never becomes open again."""
    expect.set_options(timeout=PATIENCE_MS)
    with deployed(tmp_path, engine="nothing") as running:
        key = ApiKeys(running.folder).create("ann")
        visited = visit(browser, running.url, width=1280, height=900)
        visited.go("#/studio")
        visited.field("Key").fill("calotype-wrong-key")
        visited.press("Use this key")
        expect(visited.page.get_by_role("alert")).to_contain_text("not known")
        visited.keep("key")
        visited.field("Key").fill(key)
        visited.press("Use this key")
        expect(visited.page.get_by_text("Nothing yet.")).to_be_visible()
        visited.page.reload()
        expect(visited.page.get_by_text("Nothing yet.")).to_be_visible()
        visited.go("#/system")
        expect(visited.page.get_by_role("region", name="Deployment")).to_contain_text("ann")
        visited.press("Sign out")
        expect(visited.field("Key")).to_be_visible()
        visited.page.context.close()


def _fits(visited: Visit) -> bool:
    return bool(visited.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_a_damaged_queue_database_is_said_in_every_room(browser: Browser, tmp_path: Path) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    with deployed(tmp_path, engine="nothing") as running:
        queue = running.folder / "queue"
    with (queue / "jobs.sqlite").open("r+b") as file:
        file.write(b"\xff" * 4096)
    with deployed(tmp_path, engine="nothing") as running:
        visited = visit(browser, running.url, width=375, height=812)
        for room in ROOMS:
            visited.go(room)
            expect(visited.page.get_by_text("the queue database was damaged")).to_be_visible()
            until(partial(_fits, visited), f"{room} fits a phone")
        assert violations(visited) == []
        visited.press("Close")
        expect(visited.page.get_by_text("the queue database was damaged")).to_have_count(0)
        for path in queue.glob("jobs.sqlite*"):
            path.unlink()
        answer = httpx.post(f"{running.url}/v1/jobs", json={"request": {"prompt": "too late"}})
        assert answer.status_code == 503
        visited.page.reload()
        expect(
            visited.page.get_by_text("No new jobs: the queue's database jobs.sqlite was deleted")
        ).to_be_visible()
        visited.page.context.close()
