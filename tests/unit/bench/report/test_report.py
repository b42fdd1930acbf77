"""What a report says of known measurements."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from calotype.bench.references.load import by_id
from calotype.bench.references.units import measures
from calotype.bench.report.aggregate import points_of
from calotype.bench.report.build import compose
from calotype.bench.report.document import Report, Table, number, table, words
from calotype.bench.report.load import gather
from calotype.bench.report.render_html import page
from calotype.bench.report.render_markdown import as_markdown, plain
from calotype.bench.sweep.ratios import ratio
from calotype.spec.records.measurement import Measurement, Series
from tests.unit.bench.report.conftest import of, section
from tests.unit.bench.report.samples import batches, picture, scaling, served, stored, training, work


def cells(found: Table, head: str) -> dict[str, str]:
    """A column by the row's first cell."""
    place = found.columns.index(head)
    return {row[0].text: row[place].text for row in found.rows}


def test_rounds_are_one_point_with_their_spread(tmp_path: Path) -> None:
    rounds = [picture("one", seconds, seconds + 2, round=n) for n, seconds in ((1, 1.0), (2, 3.0), (3, 2.0))]
    [point] = points_of(gather(stored(tmp_path, *rounds)).stored)
    assert point.seconds is not None
    assert (point.seconds.low, point.seconds.middle, point.seconds.high) == (2.0, 3.0, 4.0)


def test_one_round_has_the_spread_of_its_units(tmp_path: Path) -> None:
    [point] = points_of(gather(stored(tmp_path, picture("one", *range(1, 102)))).stored)
    assert point.seconds is not None
    assert (point.seconds.low, point.seconds.middle, point.seconds.high) == (6.0, 51.0, 96.0)


def test_training_goes_by_the_devices_clock(tmp_path: Path) -> None:
    host = training("one", 32.0)
    values = host.model_dump() | {"series": {**host.series, "device": Series.of("s", [1.5, 1.5])}}
    [point] = points_of(gather(stored(tmp_path, Measurement.model_validate(values))).stored)
    assert point.seconds is not None
    assert point.seconds.middle == 1.5
    assert point.rate is not None
    assert point.rate.middle == 32.0


def test_names_are_unique_whatever_the_runs_call_their_points(tmp_path: Path) -> None:
    for run in ("a", "b"):
        stored(
            tmp_path / run, picture("one", 1.0), picture("one", 1.0, request={"seed": 2}), picture("two", 1.0)
        )
    stored(tmp_path / "c", picture("three", 1.0))
    names = [point.name for point in points_of(gather([tmp_path]).stored)]
    assert names == [
        *("one (a) line 1", "one (a) line 2", "two (a)"),
        *("one (b) line 1", "one (b) line 2", "two (b)"),
        "three",
    ]


def test_failures_are_rows_marks_and_reasons(report: Report) -> None:
    failed = section(report, "failures").tables[0]
    assert cells(failed, "status") == {"batch=32 diffusers-eager": "oom", "only fused_geglu": "oom"}
    assert set(cells(failed, "reason").values()) == {"CUDA out of memory. Tried to allocate 40.00 GiB"}
    every = section(report, "points").tables[0]
    assert cells(every, "status")["batch=32 diffusers-eager"] == "oom"
    figure = section(report, "shapes").figures[0]
    assert figure.name == "throughput-batch-inference-1"
    assert len(figure.plot.findall("path[@class='bad-mark']")) == 1
    assert [row[-1].text for row in figure.data.rows].count("oom") == 1
    bars = section(report, "ablation").figures[0].plot
    assert [text.text for text in bars.findall("text[@class='bad-text']")] == ["oom"]


def test_a_point_that_failed_in_one_round_says_so_and_keeps_its_numbers(tmp_path: Path) -> None:
    found = of(tmp_path, picture("one", 2.0, round=1), picture("one", round=2))
    every = section(found, "points").tables[0]
    assert cells(every, "status") == {"one": "oom in 1 of 2 rounds"}
    assert cells(every, "seconds") == {"one": "2.000"}


def test_a_round_that_failed_twice_is_one_round(tmp_path: Path) -> None:
    again = picture("one", round=2, message="no room, again")
    found = of(tmp_path, picture("one", 2.0, round=1), picture("one", round=2), again)
    every = section(found, "points").tables[0]
    assert cells(every, "status") == {"one": "oom in 1 of 2 rounds"}
    assert cells(section(found, "failures").tables[0], "reason") == {"one": "no room, again"}


def test_the_headline_divides_by_the_reference(tmp_path: Path) -> None:
    found = section(of(tmp_path, training("mine", 132.0, gpus=2)), "headline")
    assert (found.cards[0].value, found.cards[0].unit) == ("66.0", "samples/s on one GPU")
    ratios = cells(found.tables[0], "ours ÷ theirs")
    name = "performance/peers-read/5/eager"
    assert ratios[name] == f"{66 / measures(by_id(name))['samples/s/GPU']:.2f}×"
    assert "number of GPUs: 2 vs. 1" in cells(found.tables[0], "not comparable")[name]


def test_fewer_steps_of_smaller_pictures_are_no_record(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        picture("quick", 0.1, request={"steps": 1}),
        picture("small", 0.5, request={"width": 64, "height": 64}),
        picture("whole", 1.0),
    )
    assert "512×512, batch 1, 20 steps" in " ".join(section(found, "headline").cards[0].beside)


def test_a_server_is_told_by_its_rate_and_how_long_requests_take(tmp_path: Path) -> None:
    idle = served("calotype solo", 358.0, 0.1, 0.2, 0.3, engine="nothing")
    found = of(tmp_path, idle, served("calotype load", 11.5, 5.0, 5.5, 6.0))
    [card] = section(found, "headline").cards
    assert (card.value, card.unit) == ("11.5", "requests/s on one GPU"), "no engine, no headline"
    assert "a request took 5.50 s (5.05 to 5.95)" in card.beside
    assert not [line for line in card.beside if line.startswith("spread")], "requests overlap"
    [_, load] = points_of(gather([tmp_path]).stored)
    assert load.rate is not None
    assert (load.rate.low, load.rate.high) == (11.5, 11.5)
    [every] = section(found, "points").tables
    assert cells(every, "load")["calotype solo"] == "engine=nothing, interface=grpc, clients=64"


def test_a_server_without_an_engine_has_a_report_and_no_headline(tmp_path: Path) -> None:
    found = of(tmp_path, served("calotype solo", 358.0, 0.1, 0.2, 0.3, engine="nothing"))
    assert [one.name for one in found.sections if one.name in ("headline", "points")] == ["points"]


def test_efficiency_of_more_gpus(report: Report, tmp_path: Path) -> None:
    [figure] = section(report, "scaling").figures
    rates = {m.devices: m.samples_per_s or 0 for m in scaling()}
    wanted = {str(n): f"{rate / n / rates[1]:.1%}" for n, rate in rates.items()}
    assert cells(figure.data, "efficiency") == wanted
    assert "calotype train" in figure.commands[0]
    assert "97.8% efficiency" in as_markdown(report), "and the conclusions say it too"


def test_an_ablation_divides_like_by_like(report: Report) -> None:
    [gains] = section(report, "ablation").tables
    among = cells(gains, "times as fast, in the full set")
    assert among["own_forward"].startswith("1.62× ")
    assert among["fused_geglu"].endswith("?"), "0.4 % lies within the spread"
    assert cells(gains, "times as fast alone")["cuda_graphs"].startswith(f"{2.4 / 2.1:.2f}× ")
    assert cells(gains, "times as fast alone")["fused_geglu"] == "failed"


def test_variants_that_come_to_the_same_are_one_bar_and_two_gains(tmp_path: Path) -> None:
    seconds = {"all": 1.0, "none": 4.0, "without a, only b": 2.0, "without b, only a": 1.6}
    found = of(tmp_path, *(picture(name, s, s, settings={"variant": name}) for name, s in seconds.items()))
    [gains] = section(found, "ablation").tables
    assert cells(gains, "times as fast, in the full set") == {
        "a": "2.00× (2.00–2.00)",
        "b": "1.60× (1.60–1.60)",
    }
    assert cells(gains, "times as fast alone") == {"a": "2.50× (2.50–2.50)", "b": "2.00× (2.00–2.00)"}
    assert len(section(found, "ablation").figures[0].plot.findall("rect")) == 4


def test_two_ablations_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    """As `bench ablate` leaves them that was asked for another size, and then again for more units."""
    seconds = {"all": 1.0, "none": 4.0, "without a": 2.0, "only a": 2.5}
    points = [
        picture(
            name, s * times, s * times, settings={"variant": name}, request={"width": side, "height": side}
        )
        for side, times in ((512, 1.0), (1024, 5.0))
        for name, s in seconds.items()
    ]
    again = [one.model_copy(update={"id": f"{one.id} units=9"}) for one in points[4:]]
    died = picture("only b", settings={"variant": "only b"}, request={"width": None, "height": None})
    found = section(of(tmp_path, *points, *again, died), "ablation")
    assert [cells(one, "times as fast, in the full set")["a"] for one in found.tables] == (
        ["2.00× (2.00–2.00)"] * 3
    )
    assert cells(found.tables[0], "times as fast alone")["b"] == "failed"
    assert "512×512, batch 1, steps 20" in found.tables[0].caption
    assert "1024×1024, batch 1, steps 20" in found.tables[1].caption
    assert [len(one.data.rows) for one in found.figures if one.name.startswith("ablation-time")] == [5, 4, 4]


def test_an_ablation_that_was_begun_is_not_divided_by_another(tmp_path: Path) -> None:
    points = [
        picture(name, s, s, settings={"variant": name}) for name, s in (("all", 1.0), ("without a", 2.0))
    ]
    larger = {"width": 1024, "height": 1024}
    begun = picture("all", 5.0, 5.0, settings={"variant": "all"}, request=larger)
    found = section(of(tmp_path, *points, begun), "ablation").tables[0]
    assert cells(found, "times as fast, in the full set") == {"a": "2.00× (2.00–2.00)"}


def test_peers_stand_beside_ours_of_the_same_run_only(report: Report) -> None:
    [beside] = section(report, "peers").tables
    ours = {(m.settings.get("preset"), m.settings["batch"], m.round): m for m in batches() if m.wall}
    one, other = (ours[key, 4, 2].wall for key in ("fast", None))
    assert one is not None
    assert other is not None
    told = cells(beside, "times as fast")["batch=4 preset=fast"]
    assert told.startswith(f"{other.median / one.median:.2f}× (")
    assert not [name for name in cells(beside, "times as fast") if name.startswith(("size", "steps", "only"))]


def test_a_peer_stands_beside_ours_that_turned_what_it_does_not_have(tmp_path: Path) -> None:
    """As `bench train --against diffusers-eager --sweep model.compile=true,false` records them."""
    plain, compiled = (
        training(f"compile={on}", rate, settings={"batch": 32, "model.compile": on})
        for on, rate in ((False, 50.0), (True, 75.0))
    )
    peer = training("theirs", 25.0, settings={"batch": 32}, system="diffusers-eager")
    other = training("of another batch", 25.0, batch=8, settings={"batch": 8}, system="diffusers-eager")
    [beside] = section(of(tmp_path, plain, compiled, peer, other), "peers").tables
    told = {name: ratio.split("×")[0] for name, ratio in cells(beside, "times as fast").items()}
    assert told == {"compile=False": "2.00", "compile=True": "3.00"}


def test_a_roofline_says_where_memory_holds_back(report: Report) -> None:
    figure = next(f for f in section(report, "arithmetic").figures if f.name == "roofline-1")
    assert f"= {782e12 / 4200e9:.0f} FLOP" in figure.says
    assert "calotype bench ceiling" in figure.commands
    assert not [row for row in figure.data.rows if "sd2-base" in row[0].text], "bf16 is under another roof"


def test_what_is_faster_than_the_ceiling_is_remarked_upon(tmp_path: Path) -> None:
    below, above = (picture(f"{n}", 1.0, work=work(n), settings={"n": n}) for n in (400, 900))
    [plain_one] = section(of(tmp_path / "a", below), "arithmetic").figures
    [remarked] = section(of(tmp_path / "b", below, above), "arithmetic").figures
    assert "above it" not in plain_one.says
    assert "above it" in remarked.says


def test_conclusions_of_several_systems_say_whose_they_are(report: Report) -> None:
    told = [row[0].text for found in section(report, "conclusions").tables for row in found.rows]
    lines = [line for line in told if line.startswith("time by batch on 1 × NVIDIA H200")]
    assert {line.split(":")[0].rpartition(", ")[2] for line in lines} == {
        *("calotype fast", "calotype baseline", "diffusers-eager")
    }
    assert any(line.startswith("1 × NVIDIA H200, calotype fast is fastest at batch") for line in told)
    peer = "calotype fast instead of diffusers-eager on NVIDIA H200 at batch 4, 512×512, 20 steps: "
    assert any(line.startswith(peer) for line in told)


def test_a_difference_within_the_spread_is_remarked_upon(tmp_path: Path) -> None:
    peer = [picture("peer", 1.0 + 0.1 * n, round=n, system="diffusers-eager", preset=None) for n in (1, 2, 3)]
    same = [picture("same", 1.05 + 0.1 * n, round=n, preset="baseline") for n in (1, 2, 3)]
    fast = [picture("fast", 0.5 + 0.01 * n, round=n) for n in (1, 2, 3)]
    tables = section(of(tmp_path, *fast, *same, *peer), "conclusions").tables
    changed = next(found for found in tables if found.caption.startswith("One thing changed"))
    notes = {
        row[0].text.split(" instead")[0]: row[changed.columns.index("notes")].text for row in changed.rows
    }
    assert "within the spread of the runs: ±8.0% and ±8.4%" in notes["calotype baseline"]
    assert "swing" not in notes["calotype fast"]


def test_page_and_markdown_say_the_same(report: Report) -> None:
    page_text = html.unescape(re.sub(r"<[^>]+>", "", page(report)))
    markdown_text = as_markdown(report)
    tables = [t for s in report.sections for t in (*s.tables, *(figure.data for figure in s.figures))]
    told = {
        text for t in tables for text in (t.caption, t.note, *t.columns, *(c.text for r in t.rows for c in r))
    }
    told |= {line for s in report.sections for card in s.cards for line in (card.what, *card.beside)}
    told |= {command for s in report.sections for figure in s.figures for command in figure.commands}
    assert len(told) > 300
    assert [text for text in told if text not in page_text] == []
    assert [text for text in told if plain(text) not in markdown_text and text not in markdown_text] == []


class Rendered(HTMLParser):
    """What a reader of Markdown sees: the cells of tables, and which tags there are."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(MarkdownIt("commonmark").enable("table").render(markdown))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


ATTACKS = [
    "<script>alert(1)</script>",
    "a | b",
    "`code`",
    "[x](javascript:y)",
    "*loud*",
    "a\\",
    "&lt;",
    "_x_ ~~y~~",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_markdown_keeps_text_as_text(attack: str, tmp_path: Path) -> None:
    measured = picture(attack, message=attack, command=attack), picture("good", 1.0, notes=[attack])
    found = Rendered(as_markdown(of(tmp_path, *measured)))
    told = [cell.strip() for cell in found.cells]
    # As point and reason of the failure, as a command in both tables, in all points, and as a note.
    assert told.count(attack) >= 6
    assert not found.tags & {"script", "a", "em", "del"}


def test_what_is_the_same_everywhere_is_said_once() -> None:
    found = table(
        "All.",
        ("name", "same", "own", "none"),
        [[words("a"), words("x"), number(1), words("")], [words("b"), words("x"), number(2), words("")]],
    )
    assert (found.caption, found.columns) == ("All. All rows: same x.", ("name", "own"))


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (12345.6, "#.4g", "12,346"),
        (4.1, "#.4g", "4.100"),
        (0.0, "+.2f", "0.00"),
        (-0.001, "+.2f", "0.00"),
        (10, "d", "10"),
        (4200.0, "#.4g", "4200"),
    ],
)
def test_numbers_read_like_numbers(value: float, form: str, shown: str) -> None:
    assert number(value, form).text == shown


def test_ceilings_that_came_as_measurements_are_shown(tmp_path: Path) -> None:
    values = picture("peak", 1.0).model_dump() | {"kind": "ceiling", "request": None}
    values["series"] = {"matmul": {**values["series"]["wall"], "unit": "TFLOP/s"}}
    found = of(tmp_path, Measurement.model_validate(values), picture("one", 1.0))
    assert cells(section(found, "arithmetic").tables[0], "work") == {"NVIDIA H200": "matmul"}


def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    files = stored(tmp_path, *batches(), *scaling())
    one, other = (compose(gather(files)) for _ in range(2))
    assert page(one) == page(other)
    assert as_markdown(one) == as_markdown(other)


def test_failures_alone_make_a_report_too(tmp_path: Path) -> None:
    names = ("all", "none", "without x", "only x")
    found = of(tmp_path, *(picture(name, settings={"variant": name}) for name in names), training("t", None))
    assert len(section(found, "failures").tables[0].rows) == 5
    assert "5 points failed" in found.says
    assert "headline" not in [one.name for one in found.sections]
    assert page(found).count("<svg") == 1, "the ablation's, with a word for every failure"


def test_rounds_of_which_one_could_not_be_weighed_still_compare(tmp_path: Path) -> None:
    found = of(tmp_path, picture("one", 1.0, round=1), picture("one", 1.0, round=2, memory=[]))
    assert section(found, "headline").tables


def test_one_machine_with_two_versions_of_ours_is_one_machine(tmp_path: Path) -> None:
    found = of(tmp_path, picture("one", 1.0), picture("two", 1.0, commit="fedcba9876543210", modified=True))
    [machines] = section(found, "environment").tables
    assert machines.columns == ("property", "machine")
    told = cells(machines, "machine")
    assert told["Calotype"] == (
        "0.1.0, commit 0123456789ab; 0.1.0, commit fedcba987654, with uncommitted changes"
    )
    assert told["GPUs in the machine"] == "NVIDIA H200, 140 GiB"
    assert "torchao" not in told["packages"]


def test_a_cpu_is_no_gpu(tmp_path: Path) -> None:
    [card] = section(of(tmp_path, picture("one", 1.0, device="CPU Xeon", memory=[])), "headline").cards
    assert card.unit == "images/s on one CPU"


def test_rows_around_a_base_are_held_against_it_by_the_sample(tmp_path: Path) -> None:
    """A row that only had room for a smaller batch is not faster for taking less time a step."""
    rows = {"base": ("all", 16, 64.0), "compile": ("with compile", 16, 128.0), "math": ("with math", 2, 10.0)}
    points = [
        training(name, rate, batch=batch, settings={"variant": variant})
        for name, (variant, batch, rate) in rows.items()
    ]
    found = section(of(tmp_path, *points), "ablation")
    assert "Each row changes settings of base" in found.figures[0].says
    assert found.figures[0].data.columns[1] == "milliseconds of one sample"
    times = {row[0].text: round(row[1].order or 0) for row in found.figures[0].data.rows}
    assert times == {"base": 16, "compile": 8, "math (batch 2)": 101}
    [gains] = found.tables
    assert {name: told.split("×")[0] for name, told in cells(gains, "times as fast as base").items()} == {
        "compile": "2.00",
        "math (batch 2)": "0.16",
    }


def test_training_is_divided_on_the_devices_clock_too() -> None:
    def by_device(seconds: float) -> Measurement:
        host = training("one", 32.0)
        series = {**host.series, "device": Series.of("s", [seconds, seconds])}
        return host.model_copy(update={"series": series})

    found = ratio([by_device(1.0)], [by_device(3.0)])
    assert found is not None
    assert (found.value, found.low, found.high) == (3.0, 3.0, 3.0)


def test_of_references_as_near_the_strongest_is_quoted(tmp_path: Path) -> None:
    found = section(of(tmp_path, training("mine", 100.0)), "headline")
    assert any("performance/peers-read/5/compile" in line for line in found.cards[0].beside)
    assert not any("performance/peers-read/5/eager" in line for line in found.cards[0].beside)


def test_files_are_named_from_the_folder_that_holds_them_all(tmp_path: Path) -> None:
    """Where a checkout lay on the machine that made a report is nobody's business."""
    for run in ("a", "b"):
        stored(tmp_path / "runs" / run, picture(run, 1.0))
    with (tmp_path / "runs" / "b" / "records.jsonl").open("a") as out:
        out.write("torn\n")
    found = compose(gather([tmp_path / "runs"]))
    assert cells(section(found, "commands").tables[0], "record") == {
        "a": "runs/a/records.jsonl:1",
        "b": "runs/b/records.jsonl:1",
    }
    assert cells(section(found, "unreadable").tables[0], "file") == {
        "runs/b/records.jsonl": "runs/b/records.jsonl"
    }
    assert str(tmp_path) not in page(found)


def test_pictures_without_guidance_are_no_record(tmp_path: Path) -> None:
    """Their steps are half the work."""
    found = of(tmp_path, picture("guided", 1.0), picture("unguided", 0.6, request={"cfg": 1.0}))
    assert "cfg 8" in " ".join(section(found, "headline").cards[0].beside)


def test_what_was_measured_once_has_no_spread(tmp_path: Path) -> None:
    peer = picture("peer", 2.0, system="diffusers-eager", preset=None)
    found = of(tmp_path, picture("one", 1.0), peer)
    assert "measured once, so the spread is unknown" in section(found, "headline").cards[0].beside
    assert "spread, s" not in section(found, "points").tables[0].columns
    assert cells(section(found, "peers").tables[0], "times as fast") == {"one": "2.00× (once) ?"}


def test_a_note_of_many_points_is_told_once(tmp_path: Path) -> None:
    found = of(tmp_path, *(picture(name, 1.0, notes=["weights were there"]) for name in ("one", "two")))
    assert cells(section(found, "notes").tables[0], "points") == {"weights were there": "one; two"}


def test_a_table_of_one_point_says_beside_it_what_ran(tmp_path: Path) -> None:
    [every] = section(of(tmp_path, picture("one", 1.0)), "points").tables
    assert every.caption.endswith(
        "The row: software calotype fast, precision fp16, device NVIDIA H200, GPUs 1, rounds 1."
    )
    assert "device" not in every.columns


def test_a_word_among_numbers_stands_where_they_do() -> None:
    mixed = table("Mixed.", ("name", "rate"), [[words("a"), words("oom")], [words("b"), number(2)]], keep=2)
    assert [mixed.holds_numbers(column) for column in range(2)] == [False, True]


def test_records_of_several_machines_are_told_in_one_order(tmp_path: Path) -> None:
    cpu = picture(
        "one", 1.0, device="CPU X", fingerprint={"machine": {"python": "3.12", "cpu": {"model": "X"}}}
    )
    [machines] = section(of(tmp_path, cpu, picture("two", 1.0)), "environment").tables
    assert [row[0].text for row in machines.rows][:4] == ["device", "GPUs in the machine", "driver", "CUDA"]


def test_no_ratio_is_quoted_of_fewer_steps_or_of_a_bound(tmp_path: Path) -> None:
    """Twenty steps are not fourteen times as fast as fifty; what nobody ran is nobody's speed."""
    twenty = picture("twenty", 1.0, model="random:sd15", request={"cfg": 7.5})
    fifty = picture("fifty", 2.0, model="random:sd15", request={"cfg": 7.5, "steps": 50})
    few = section(of(tmp_path / "few", twenty), "headline")
    assert not [line for line in few.cards[0].beside if "DeepSpeed" in line or "bound" in line]
    assert "steps: 20 vs. 50" in cells(few.tables[0], "not comparable")["deepspeed-mii/mii (mean of 5)"]
    many = section(of(tmp_path / "many", fifty), "headline")
    assert [line for line in many.cards[0].beside if "0.63× DeepSpeed-MII" in line]
    assert not [bar for figure in many.figures for bar in figure.data.rows if "bound" in bar[0].text]
