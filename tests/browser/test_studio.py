"""The studio as people meet it: from a prompt to a picture, and everything around it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import httpx
import pytest
from PIL import Image, ImageChops, ImageStat
from playwright.sync_api import expect

from calotype.imaging.image_io import read_record
from tests.browser.conftest import Visitor
from tests.browser.served import Deployed, Visit
from tests.polling import until
from tests.small_models import shrunk_folder

PROMPT = "an orange heart, noto style, on a light blue background"


def fill(visit: Visit, prompt: str = PROMPT, **values: str) -> None:
    """The form, for small quick pictures unless other values are said."""
    wanted = {"Width": "64", "Height": "64", "Steps": "3", "CFG": "4", **values}
    visit.field("Prompt").fill(prompt)
    for label, value in wanted.items():
        visit.field(label).fill(value)


def finished(visit: Visit, prompt: str = PROMPT) -> None:
    expect(visit.page.locator(".finished img")).to_have_attribute("alt", re.compile(re.escape(prompt)))
    expect(visit.page.locator(".finished img")).to_have_js_property("complete", True)


def picture(deployment: Deployed, job: dict[str, object], index: int = 0) -> Image.Image:
    data = httpx.get(f"{deployment.url}/v1/jobs/{job['id']}/pictures/{index}").content
    return Image.open(io.BytesIO(data)).convert("RGB")


def test_a_prompt_becomes_a_picture_before_ones_eyes(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    expect(visit.page.get_by_text("Nothing yet.")).to_be_visible()
    fill(visit, Width="", Height="", Steps="20")
    visit.field("Seed").fill("7")
    visit.field("Prompt").press("Control+Enter")
    expect(visit.page.get_by_alt_text("Preview of what is being made")).to_be_visible()
    expect(visit.page.locator(".stage progress")).to_be_visible()
    visit.keep("studio-running")
    finished(visit)
    shown = visit.page.locator(".finished img")
    assert shown.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [128, 128]
    job = deployment.jobs()[0]
    assert (job["request"]["seed"], job["request"]["steps"], job["request"]["cfg"]) == (7, 20, 4)
    details = visit.page.get_by_label("Details")
    for said in (PROMPT, "dpmpp_2m", "karras", "128 × 128", job["id"], job["pictures"][0]["sha256"][:12]):
        expect(details).to_contain_text(str(said))
    expect(visit.page.locator(".gallery img")).to_have_count(1)
    visit.keep("studio-finished")
    assert visit.said == []
    assert {address.split("/")[2] for address in visit.asked if address.startswith("http")} == {
        deployment.url.split("/")[2]
    }


def test_a_long_prompt_leaves_the_buttons_in_sight(visitor: Visitor) -> None:
    visit = visitor()
    prompt = ", ".join([PROMPT] * 40)
    fill(visit, prompt, Steps="1")
    visit.press("Generate")
    finished(visit, prompt)
    for name in ("Download", "Delete"):
        expect(visit.page.locator(".finished").get_by_text(name, exact=True)).to_be_in_viewport(ratio=1)
    # Its line among the details is its own, so that the others stand together.
    whole = visit.page.get_by_label("Details").bounding_box()
    line = visit.page.get_by_label("Details").locator("div").first.bounding_box()
    assert whole
    assert line
    assert line["width"] == whole["width"]


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_a_long_name_of_a_lora_leaves_its_controls_in_reach(
    visitor: Visitor, deployment: Deployed, width: int
) -> None:
    names = ["watercolor_" * 9, "Ink And Wash On Rice Paper, Version 12, By Somebody With A Long Name Indeed"]
    loras = [{"name": name, "strength": 1, "text_strength": None} for name in names]
    files = deployment.models / "loras"
    files.mkdir(parents=True, exist_ok=True)
    unused = files / f"{'charcoal_' * 12}.safetensors"
    unused.touch()
    try:
        visit = visitor(width=width)
        visit.page.evaluate(
            "form => localStorage.setItem('calotype.studio', form)", json.dumps({"loras": loras})
        )
        visit.page.reload()
        form = visit.page.locator(".settings")
        adding = visit.page.get_by_label("Add a LoRA", exact=True)
        expect(adding.locator("option").last).to_have_text(unused.name)
        edge = form.evaluate("form => form.getBoundingClientRect().right")
        strengths = visit.page.get_by_role("spinbutton", name=re.compile("^Strength of"))
        expect(strengths).to_have_count(2)
        for control in (*strengths.all(), *visit.page.locator(".lora button").all(), adding):
            box = control.bounding_box()
            assert box
            assert box["x"] + box["width"] <= min(edge, width)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        strengths.first.fill("0.5")
        visit.keep(f"long-lora-{width}")
        visit.page.locator(".lora button").last.click()
        expect(strengths).to_have_count(1)
        expect(strengths).to_have_value("0.5")
    finally:
        unused.unlink()


def test_the_seed_that_the_dice_shows_is_the_one_that_is_sent(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    fill(visit, Steps="1")
    visit.press("Draw another seed")
    drawn = visit.field("Seed").input_value()
    expect(visit.field("Keep this seed")).to_be_checked()
    visit.press("Generate")
    finished(visit)
    assert str(deployment.jobs()[0]["request"]["seed"]) == drawn
    expect(visit.field("Seed")).to_have_value(drawn)
    visit.field("Keep this seed").uncheck()
    visit.press("Generate")
    until(lambda: len(deployment.jobs()) == 2, "another job is there")
    assert str(deployment.jobs()[0]["request"]["seed"]) != drawn


def test_pictures_are_turned_by_keys_without_losing_the_focus(visitor: Visitor, deployment: Deployed) -> None:
    for seed in (1, 2, 3):
        request = {"prompt": PROMPT, "width": 64, "height": 64, "steps": 1, "seed": seed}
        httpx.post(f"{deployment.url}/v1/jobs?wait=true", json={"request": request}).raise_for_status()
    visit = visitor()
    picture = visit.page.locator(".finished img")
    expect(picture).to_have_attribute("alt", re.compile("seed 3"))
    following = visit.page.get_by_role("button", name="Next picture", exact=True)
    following.press("Enter")
    expect(picture).to_have_attribute("alt", re.compile("seed 2"))
    expect(following).to_be_focused()
    visit.page.keyboard.press("Enter")
    expect(picture).to_have_attribute("alt", re.compile("seed 1"))
    # At the last picture too, so that the arrow keys lead back.
    expect(following).to_be_focused()
    expect(following).to_be_disabled()
    visit.page.keyboard.press("Enter")
    visit.page.keyboard.press("ArrowLeft")
    expect(picture).to_have_attribute("alt", re.compile("seed 2"))
    expect(following).to_be_focused()
    # Each picture asks anew whether it is to be deleted.
    visit.press("Delete")
    following.press("ArrowRight")
    expect(visit.page.locator(".finished .notice")).to_have_count(0)


def test_a_running_job_is_cancelled(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    fill(visit, Steps="200")
    visit.press("Generate")
    expect(visit.page.locator(".stage progress")).to_be_visible()
    visit.press("Cancel")
    expect(visit.page.get_by_text("Cancelled.")).to_be_visible()
    until(lambda: deployment.jobs()[0]["state"] == "cancelled", "the job is cancelled")
    expect(visit.page.get_by_text("Nothing is waiting.")).to_be_visible()


def test_two_tabs_leave_each_other_room_while_jobs_run(visitor: Visitor, deployment: Deployed) -> None:
    for number in range(3):
        request = {"prompt": f"number {number}", "width": 64, "height": 64, "steps": 200}
        httpx.post(f"{deployment.url}/v1/jobs", json={"request": request}).raise_for_status()
    first = visitor()
    expect(first.page.locator(".item-running")).to_have_count(3)
    # In the same browser, which has six connections to a server.
    other = Visit(first.page.context.new_page(), first.url)
    other.go("#/studio")
    expect(other.page.locator(".item-running")).to_have_count(3)
    for number, tab in enumerate((first, other)):
        tab.page.get_by_role("button", name=f"Cancel: number {number}", exact=True).click()
        expect(tab.page.get_by_role("link", name=f"Show: number {number}", exact=True)).to_have_count(0)


def test_a_reload_finds_the_run_again(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    fill(visit, Steps="200")
    visit.press("Generate")
    progress = visit.page.locator(".stage progress")
    expect(progress).to_be_visible()
    visit.page.reload()
    expect(progress).to_be_visible()
    expect(visit.field("Prompt")).to_have_value(PROMPT)
    expect(visit.page.get_by_alt_text("Preview of what is being made")).to_be_visible()
    found = float(progress.evaluate("bar => bar.value"))
    until(lambda: float(progress.evaluate("bar => bar.value")) > found, "it goes on")
    assert [job["state"] for job in deployment.jobs()] == ["running"]


def test_settings_are_used_again_and_make_the_same_picture(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    fill(visit, Pictures="2")
    # Of 64 bits, which no number of a browser holds.
    visit.field("Seed").fill("18446744073709551614")
    visit.press("Generate")
    expect(visit.page.locator(".gallery img")).to_have_count(2)
    visit.page.locator(".gallery a").nth(1).click()
    visit.press("Reset")
    visit.press("Use these settings")
    expect(visit.field("Seed")).to_have_value("18446744073709551615")
    expect(visit.field("Pictures")).to_have_value("1")
    expect(visit.field("Prompt")).to_have_value(PROMPT)
    visit.press("Generate")
    expect(visit.page.locator(".gallery img")).to_have_count(3)
    again, first = deployment.jobs()
    assert again["pictures"][0]["seed"] == first["pictures"][1]["seed"] == 2**64 - 1
    difference = ImageChops.difference(picture(deployment, again), picture(deployment, first, 1))
    assert max(high for _, high in difference.getextrema()) <= 1  # type: ignore[misc]


def test_what_the_brush_paints_is_made_anew_and_the_rest_is_kept(
    visitor: Visitor, deployment: Deployed, tmp_path: Path
) -> None:
    start = tmp_path / "start.png"
    Image.new("RGB", (64, 64), (40, 90, 200)).save(start)
    visit = visitor()
    fill(visit, Width="", Height="", Steps="6")
    visit.page.locator('input[type="file"]').set_input_files(start)
    visit.press("Paint a mask")
    box = visit.page.get_by_label("Mask over the start picture").bounding_box()
    assert box
    # The left half, from top to bottom.
    for share in (0.06, 0.14, 0.22, 0.3, 0.38):
        visit.page.mouse.move(box["x"] + box["width"] * share, box["y"] + 1)
        visit.page.mouse.down()
        visit.page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] - 1, steps=8)
        visit.page.mouse.up()
    visit.keep("studio-mask")
    visit.press("Use this mask")
    expect(visit.page.get_by_alt_text("With a mask")).to_be_visible()
    visit.press("Generate")
    finished(visit)
    request = deployment.jobs()[0]["request"]
    assert request["image"]
    assert request["mask"]
    made = picture(deployment, deployment.jobs()[0])
    assert made.size == (64, 64)
    changed = ImageChops.difference(made, Image.open(start)).convert("L")
    kept, painted = changed.crop((44, 0, 64, 64)), changed.crop((0, 0, 24, 64))
    assert kept.getextrema()[1] <= 2  # type: ignore[operator]
    assert ImageStat.Stat(painted).mean[0] > 10
    visit.keep("studio-inpainted")


def test_a_mask_that_was_cleared_is_none(visitor: Visitor, tmp_path: Path) -> None:
    start = tmp_path / "start.png"
    Image.new("RGB", (64, 64), (40, 90, 200)).save(start)
    visit = visitor()
    visit.page.locator('input[type="file"]').set_input_files(start)
    remove = visit.page.get_by_role("button", name="Remove the mask", exact=True)
    visit.press("Paint a mask")
    visit.page.get_by_role("img", name="Mask over the start picture").click()
    visit.press("Use this mask")
    expect(remove).to_be_visible()
    visit.press("Change the mask")
    visit.press("Clear")
    visit.press("Use this mask")
    expect(remove).to_have_count(0)


def test_a_grid_over_two_knobs_is_labelled_and_found_again(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    fill(visit)
    visit.field("Make a grid").check()
    visit.field("Values across").fill("2, 6")
    visit.field("Values down").fill("1..2")
    visit.press("Generate the grid (4)")
    table = visit.page.get_by_role("table", name="Grid of CFG and Steps")
    expect(table.locator("img:not(.preview)")).to_have_count(4)
    assert table.locator("thead th").all_inner_texts() == ["Steps \\ CFG", "2", "6"]
    assert table.locator("tbody th").all_inner_texts() == ["1", "2"]
    asked = [(job["request"]["cfg"], job["request"]["steps"]) for job in reversed(deployment.jobs())]
    assert asked == [(2, 1), (6, 1), (2, 2), (6, 2)]
    assert len({job["request"]["seed"] for job in deployment.jobs()}) == 1
    visit.page.evaluate("localStorage.clear()")
    visit.page.reload()
    expect(table.locator("img:not(.preview)")).to_have_count(4)
    visit.keep("studio-grid")


def test_the_queue_is_put_in_another_order_and_thinned(visitor: Visitor, deployment: Deployed) -> None:
    # More jobs than a worker takes at a time, so that some wait.
    for number in range(22):
        request = {"prompt": f"number {number}", "width": 64, "height": 64, "steps": 200}
        httpx.post(f"{deployment.url}/v1/jobs", json={"request": request}).raise_for_status()
    visit = visitor()
    waiting = visit.page.locator(".item-queued .item-name")
    expect(waiting.first).to_be_visible()
    before = waiting.all_inner_texts()
    visit.page.get_by_role("button", name=f"Move down: {before[0]}", exact=True).click()
    expect(waiting.first).to_have_text(before[1])
    visit.page.get_by_role("button", name=f"Cancel: {before[2]}", exact=True).click()
    expect(visit.page.get_by_role("link", name=f"Show: {before[2]}", exact=True)).to_have_count(0)
    visit.keep("studio-queue")
    queued = [job for job in deployment.jobs() if job["state"] == "queued"]
    names = [job["request"]["prompt"] for job in sorted(queued, key=lambda job: job["position"])]
    assert names[:2] == [before[1], before[0]]
    assert before[2] not in names


def test_what_the_server_refuses_is_said_where_it_belongs(visitor: Visitor) -> None:
    visit = visitor()
    fill(visit, Steps="5000", Width="65")
    visit.press("Generate")
    alert = visit.page.get_by_role("alert")
    expect(alert).to_contain_text("steps")
    expect(alert).to_contain_text("multiple of 8")
    expect(visit.field("Width")).to_have_attribute("aria-invalid", "true")
    expect(visit.field("Steps")).to_have_attribute("aria-invalid", "true")
    visit.keep("studio-refused")


def test_a_job_that_fails_says_why(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    fill(visit)
    lora = json.dumps({"loras": [{"name": "missing", "strength": 1, "text_strength": None}]})
    visit.page.evaluate(
        """(extra) => {
            const known = JSON.parse(localStorage.getItem("calotype.studio"));
            localStorage.setItem("calotype.studio", JSON.stringify({ ...known, ...JSON.parse(extra) }));
        }""",
        lora,
    )
    visit.page.reload()
    expect(visit.page.get_by_role("button", name="Remove missing")).to_be_visible()
    visit.press("Generate")
    expect(visit.page.get_by_role("alert")).to_contain_text("missing")


def test_a_lost_connection_is_shown_and_loses_nothing(visitor: Visitor, deployment: Deployed) -> None:
    visit = visitor()
    fill(visit)
    context = visit.page.context
    context.set_offline(True)
    banner = visit.page.get_by_text("The server does not answer.")
    expect(banner).to_be_visible()
    visit.press("Generate")
    expect(visit.page.get_by_text("1 waiting for the server")).to_be_visible()
    visit.keep("studio-lost")
    assert deployment.jobs() == []
    context.set_offline(False)
    expect(banner).not_to_be_visible()
    finished(visit)
    assert len(deployment.jobs()) == 1


def test_a_start_picture_shows_through_as_far_as_its_strength_lets_it(
    visitor: Visitor, deployment: Deployed, tmp_path: Path
) -> None:
    start = tmp_path / "start.png"
    Image.new("RGB", (64, 64), (40, 90, 200)).save(start)
    visit = visitor(color_scheme="light")
    fill(visit, Width="", Height="", Steps="4")
    visit.page.locator('input[type="file"]').set_input_files(start)
    visit.field("Strength").fill("0.25")
    visit.press("Generate")
    finished(visit)
    job = deployment.jobs()[0]
    assert (job["request"]["strength"], job["request"]["mask"]) == (0.25, None)
    changed = ImageChops.difference(picture(deployment, job), Image.open(start))
    assert ImageStat.Stat(changed.convert("L")).mean[0] < 40
    details = visit.page.get_by_label("Details")
    expect(details).to_contain_text("0.25")
    # What starts from a picture is no graph of the usual nodes.
    expect(visit.page.get_by_role("link", name="Open in Graph")).to_have_count(0)
    visit.keep("studio-start")


def test_a_preset_is_chosen_kept_and_used_again(
    visitor: Visitor, deployment: Deployed, tmp_path: Path
) -> None:
    visit = visitor()
    fill(visit)
    preset = visit.page.get_by_role("combobox", name="Preset", exact=True)
    shown = preset.locator("option")
    expect(shown.first).to_have_text("fast (default)")
    expect(shown.filter(has_text="int8-static")).to_have_text("int8-static (changes the picture)")
    preset.select_option("baseline")
    visit.page.reload()
    expect(preset).to_have_value("baseline")
    visit.press("Generate")
    finished(visit)
    expect(visit.page.get_by_label("Details")).to_contain_text("Presetbaseline")
    (job,) = deployment.jobs()
    assert job["preset"] == "baseline"
    file = tmp_path / "made.png"
    file.write_bytes(httpx.get(f"{deployment.url}/v1/jobs/{job['id']}/pictures/0").content)
    record = read_record(file)
    assert record is not None
    assert record.preset == "baseline"
    visit.press("Reset")
    expect(preset).to_have_value("")
    visit.press("Use these settings")
    expect(preset).to_have_value("baseline")
    visit.keep("studio-preset")


SAMPLING = ("steps", "cfg", "sampler", "schedule")


@pytest.fixture(scope="module")
def turbo(deployment: Deployed) -> str:
    """The name of a folder with the scheduler that Turbo models are published with."""
    folder = shrunk_folder(deployment.models / "checkpoints", "sdxl")
    file = folder / "scheduler" / "scheduler_config.json"
    changes = {"_class_name": "EulerAncestralDiscreteScheduler", "timestep_spacing": "trailing"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return folder.name


@pytest.mark.parametrize(("width", "locale"), [(1440, "en-GB"), (390, "en-GB"), (390, "zh-CN")])
def test_the_form_shows_the_defaults_of_the_model(
    visitor: Visitor, turbo: str, width: int, locale: str
) -> None:
    visit = visitor(width=width, locale=locale)
    words = {
        "en-GB": ("Model", "Steps", "CFG", "auto (4)", "auto (1)", "auto (euler_ancestral)"),
        "zh-CN": ("模型", "步数", "CFG", "自动（4）", "自动（1）", "自动（euler_ancestral）"),
    }[locale]
    visit.field(words[0]).select_option(turbo)
    expect(visit.field(words[1])).to_have_attribute("placeholder", words[3])
    expect(visit.field(words[2])).to_have_attribute("placeholder", words[4])
    expect(visit.page.get_by_role("option", name=words[5], exact=True)).to_have_count(1)
    for label in words[1:3]:
        # The whole placeholder is in sight, beside the buttons that step the number.
        shown = visit.field(label).evaluate(
            """input => {
                const style = getComputedStyle(input);
                const context = document.createElement("canvas").getContext("2d");
                context.font = style.font;
                const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
                return input.clientWidth - padding - context.measureText(input.placeholder).width;
            }"""
        )
        assert shown >= 0
    visit.field(words[1]).scroll_into_view_if_needed()
    visit.keep(f"studio-automatic-{width}-{locale}")


def test_a_turbo_model_runs_with_its_own_defaults_until_a_value_is_given(
    visitor: Visitor, deployment: Deployed, turbo: str
) -> None:
    visit = visitor()
    visit.field("Prompt").fill(PROMPT)
    visit.field("Model").select_option(turbo)
    visit.press("Generate")
    finished(visit)
    (first,) = deployment.jobs()
    assert [first["request"][name] for name in SAMPLING] == [4, 1, "euler_ancestral", "trailing"]
    # What is given wins, also after a reload; the rest is still the model's own.
    visit.field("Steps").fill("2")
    visit.field("CFG").fill("3")
    visit.field("Sampler").select_option("euler")
    visit.page.reload()
    expect(visit.field("Steps")).to_have_value("2")
    visit.press("Generate")
    expect(visit.page.locator(".gallery img")).to_have_count(2)
    second = deployment.jobs()[0]
    assert [second["request"][name] for name in SAMPLING] == [2, 3, "euler", "trailing"]
    # A finished job's settings are the values that it ran with.
    visit.press("Reset")
    expect(visit.field("Steps")).to_have_value("")
    visit.page.locator(".gallery a").last.click()
    visit.press("Use these settings")
    expect(visit.field("Steps")).to_have_value("4")
    expect(visit.field("CFG")).to_have_value("1")
    expect(visit.field("Sampler")).to_have_value("euler_ancestral")
    expect(visit.field("Schedule")).to_have_value("trailing")
    assert visit.said == []
