"""The report's page as people meet it: offline, by keyboard, in light and dark, on a phone, on paper."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import pytest
from PIL import Image
from playwright.sync_api import Page
from pypdf import PdfReader

from calotype.bench.report.build import compose
from calotype.bench.report.load import gather
from calotype.bench.report.write import PAGE, write
from tests.browser.conftest import Opener
from tests.unit.bench.report.samples import everything, picture, stored

CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")
POINTS = "#points table"
PAPER = 703
"""Of A4 between its margins, in pixels."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write(compose(gather(everything(folder / "runs"))), folder / "out")
    return folder / "out" / PAGE


def column(page: Page, head: str) -> list[str]:
    """A column of the first table of points, as it stands."""
    heads = page.locator(f"{POINTS} >> nth=0").locator("thead th").all()
    place = [head_cell.get_attribute("data-head") for head_cell in heads].index(head)
    rows = page.locator(f"{POINTS} >> nth=0").locator("tbody tr:visible")
    found: list[str] = rows.evaluate_all("(rows, at) => rows.map((row) => row.cells[at].textContent)", place)
    return found


def plain(text: str) -> str:
    """Without what a font joins, and where lines end."""
    return " ".join(normalize("NFKC", text).split())


def test_asks_for_nothing_and_complains_of_nothing(opened: Opener, report: Path) -> None:
    seen = opened(report)
    for details in seen.page.locator("details").all():
        details.locator("summary").first.click()
    assert seen.asked == [report.resolve().as_uri()]
    assert seen.said == []
    pictures = "images => images.every((image) => image.complete && image.naturalWidth > 0)"
    assert seen.page.locator("img").count() == 10
    assert seen.page.locator("img").evaluate_all(pictures)


def test_sorts_by_keyboard_and_keeps_what_has_no_value_last(opened: Opener, report: Path) -> None:
    page = opened(report).page
    head = page.locator(f"{POINTS} >> nth=0").locator("th", has_text="per second")
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    up = column(page, "per second")
    measured = [float(text) for text in up if text]
    assert measured == sorted(measured)
    assert up[-2:] == ["", ""], "the two points that ran out of memory"
    assert "" not in up[:-2]
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, "per second") == [
        *(text for text in sorted(up[:-2], key=float, reverse=True)),
        "",
        "",
    ]
    other = page.locator(f"{POINTS} >> nth=0").locator("th", has_text="point")
    other.locator("button").focus()
    page.keyboard.press("Enter")
    assert page.locator(f"{POINTS} >> nth=0").locator("th[aria-sort]").count() == 1
    names = column(page, "point")
    assert names.index("batch=4 preset=fast") < names.index("batch=16 preset=fast"), "numbers sort as numbers"


def test_filters_by_keyboard(opened: Opener, report: Path) -> None:
    page = opened(report).page
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#points [data-filter]')"):
            break
    else:
        pytest.fail("Tab does not lead to the filter of all points")
    whole = len(column(page, "point"))
    page.keyboard.type("OOM diffusers")
    assert column(page, "point") == ["batch=32 diffusers-eager"]
    box = page.locator("#points [data-table] >> nth=0")
    assert box.locator("[data-count]").inner_text() == f"1 of {whole} rows"
    page.keyboard.press("Escape")
    assert len(column(page, "point")) == whole
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "region", (
        "a wide table can be moved"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_can_be_read_in_light_and_dark(
    opened: Opener, report: Path, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    page = opened(report, color_scheme=scheme).page
    shot = tmp_path / f"{scheme}.png"
    page.screenshot(path=str(shot), full_page=True)
    with Image.open(shot) as image:
        corner = image.convert("L").getpixel((2, 2))
    assert isinstance(corner, int | float)
    assert (corner > 200) if scheme == "light" else (corner < 60)
    found: list[dict[str, Any]] = page.evaluate(CONTRAST)
    assert len(found) > 500
    assert {one["kind"] for one in found} == {"text", "mark"}
    assert [one for one in found if one["ratio"] < (4.5 if one["kind"] == "text" else 3.0)] == []


def test_fits_a_phone(opened: Opener, report: Path, tmp_path: Path) -> None:
    page = opened(report, width=360).page
    page.screenshot(path=str(tmp_path / "phone.png"), full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".scroll").evaluate_all(
        "boxes => boxes.some((box) => box.scrollWidth > box.clientWidth)"
    )
    # What a row is called is what a reader finds it by: words of usual length are not cut.
    narrowest = "names => Math.min(...names.map((name) => name.clientWidth))"
    assert page.locator("tbody th:visible").evaluate_all(narrowest) >= 0.38 * 360


def test_plots_hold_all_their_text(opened: Opener, report: Path) -> None:
    page = opened(report).page
    outside = """plots => plots.flatMap((plot) => [...plot.querySelectorAll("text")].filter((text) => {
        const box = text.getBBox(), frame = plot.viewBox.baseVal;
        const right = box.x + box.width, bottom = box.y + box.height;
        return box.x < -1 || box.y < -1 || right > frame.width + 1 || bottom > frame.height + 1;
    }).map((text) => plot.querySelector("title").textContent + ": " + text.textContent))"""
    assert page.locator("svg.plot").evaluate_all(outside) == []


def test_says_what_is_what_to_who_cannot_see_it(opened: Opener, report: Path) -> None:
    page = opened(report).page
    assert page.locator("svg.plot").count() >= 12
    assert page.locator("svg.plot").evaluate_all(
        "plots => plots.every((plot) => plot.getAttribute('role') === 'img'"
        " && ['title', 'desc'].every((tag) => plot.querySelector(`:scope > ${tag}`).textContent))"
    )
    assert page.locator("table").evaluate_all(
        "tables => tables.every((t) => t.caption?.textContent.trim()"
        " && [...t.tHead.querySelectorAll('th')].every((th) => th.scope === 'col')"
        " && [...t.tBodies[0].rows].every((row) => row.cells[0].scope === 'row'))"
    )
    ids = Counter(page.locator("[id]").evaluate_all("all => all.map((one) => one.id)"))
    assert [name for name, count in ids.items() if count > 1] == []
    assert page.locator("input").evaluate_all("inputs => inputs.every((input) => input.labels.length === 1)")


def test_paper_has_all_of_it(opened: Opener, report: Path, tmp_path: Path) -> None:
    page = opened(report).page
    page.locator("#points [data-filter] >> nth=0").fill("no row holds this")
    paper = tmp_path / "report.pdf"
    page.pdf(path=str(paper), prefer_css_page_size=True)
    sheets = [plain(sheet.extract_text()) for sheet in PdfReader(paper).pages]
    whole = " ".join(sheets)
    captions = page.locator("section > .table caption").all_inner_texts()
    assert len(captions) > 10
    assert [text for text in captions if plain(text) not in whole] == []
    assert "Filter" not in whole
    assert "steps=64 ok 0.2475" in whole, "rows that a filter hides are printed"
    # The table of commands goes over page ends, and has its heads on every page.
    with_rows = [sheet for sheet in sheets if "calotype bench inference --out OUT --sweep" in sheet]
    assert len(with_rows) > 1
    assert all("record command" in sheet for sheet in with_rows)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER, "height": 900})
    wide = "tables => tables.filter((t) => t.scrollWidth > innerWidth).map((t) => t.caption.textContent)"
    assert page.locator("section > .table table").evaluate_all(wide) == [], "paper does not scroll"
    kept = "figures => figures.every((figure) => getComputedStyle(figure).breakInside === 'avoid')"
    assert page.locator(".figures > figure").evaluate_all(kept)


def test_what_records_say_stays_text(opened: Opener, tmp_path: Path) -> None:
    attack = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    names = {"command": attack, "device": attack, "notes": [attack], "model": attack}
    files = stored(
        tmp_path,
        picture(f"one {attack}", 1.0, **names, request={"steps": 2}, settings={"steps": 2, attack: attack}),
        picture("two", 2.0, **names, request={"steps": 4}, settings={"steps": 4, attack: attack}),
        picture("bad", **names, message=attack, request={"steps": 8}, settings={"steps": 8, attack: attack}),
    )
    with files[0].open("a") as out:
        out.write(f'{{"format": "{attack}"}}\n')
    write(compose(gather(files), title=attack), tmp_path / "out")
    seen = opened(tmp_path / "out" / PAGE)
    assert seen.page.evaluate("window.hacked") is None
    assert (seen.asked[1:], seen.said) == ([], [])
    assert seen.page.locator("h1").inner_text() == attack
    assert attack in seen.page.locator("#failures").inner_text()
    assert attack in seen.page.locator("#unreadable").inner_text()
    drawing = opened(tmp_path / "out" / "figures" / "time-steps-inference-1.svg")
    assert drawing.page.evaluate("window.hacked") is None
    assert drawing.said == []
