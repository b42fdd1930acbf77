"""The data itself: every table is there with every row, in known units, with its mistakes flagged.

What the texts say was compared with it cell by cell when it was written; the texts are not part of Calotype,
so what is checked here is that nothing goes missing and that the rows agree with themselves.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from calotype.bench.references.load import by_id, distinct, entries, sources
from calotype.spec.published_results import Figure, Row, Settings, Source, Table

TABLES = {
    "mig-tensorrt": {"slices": 4, "slice-inference": 2, "int8": 2, "network": 4},
    "nemo": {
        "benchmark": 19,
        "ablation": 13,
        "l20": 9,
        "h20": 10,
        "timeline-1gpu-bs16": 2,
        "timeline-1gpu-bs20": 2,
        "timeline-1gpu-bs24": 2,
        "timeline-1gpu-bs32": 2,
        "timeline-1gpu-bs48": 2,
        "timeline-1gpu-bs64": 2,
        "timeline-8gpu-bs32": 2,
        "timeline-8gpu-bs20": 2,
        "version-1": 41,
        "stated": 2,
    },
    "aws-mosaicml": {
        "single-node": 21,
        "progress": 2,
        "attention": 2,
        "scaling": 1,
        "model": 2,
        "nodes": 3,
        "allocatable": 8,
    },
    "aws-mosaicml-charts": {"throughput": 12, "speed-up": 8},
    "deepspeed-mii": {"baseline": 5, "mii": 5},
    "comfyui": {
        "default": 1,
        "resolution": 4,
        "steps-baseline": 1,
        "steps": 7,
        "cfg": 3,
        "batch": 6,
        "kernels": 4,
        "stated": 3,
    },
    "performance": {
        "ceilings": 7,
        "work": 10,
        "floors": 5,
        "peers-read": 12,
        "published": 21,
        "levers": 7,
    },
}
UNITS = {
    "throughput": {"samples/s", "samples/s/GPU"},
    "time": {"s", "ms"},
    "step_time": {"s/step", "ms/step", "s/batch"},
    "step_rate": {"it/s"},
    "peak_memory": {"MiB", "GiB", "GB"},
    "total_memory": {"MiB", "GiB", "GB", "MB", "KiB", "bytes"},
    "compute_rate": {"TFLOP/s", "TOP/s"},
    "copy_rate": {"TB/s", "Gb/s"},
    "work": {"TFLOP"},
    "ratio": {"×", "%"},
    "share": {"%"},
    "samples": {"samples"},
    "batches": {"batches"},
    "clock": {"s", "MHz"},
    "loss": {"1"},
    "parameters": {"million"},
    "count": {"pieces", "millicores", "1"},
    "price": {"USD/h", "USD/month"},
    "quality": {"1"},
}
FAILED = {
    "nemo/benchmark/13": "oom",
    "nemo/version-1/13": "oom",
    "nemo/ablation/12": "error",
    "nemo/ablation/13": "error",
    "nemo/h20/9": "error",
    "nemo/h20/10": "error",
    "nemo/version-1/40": "error",
    "nemo/version-1/41": "error",
    "aws-mosaicml/attention/1": "oom",
    "performance/peers-read/7": "timeout",
}
WRONG_OR_DOUBTFUL = {
    "nemo/benchmark/4": "sd_train_v1.py",
    "nemo/benchmark/9": "CUDA_VISIBLE_DEVICES=0",
    "nemo/benchmark/18": "all 8 GPUs together",
    "nemo/benchmark/19": "its command 16 and 128",
    "nemo/ablation/2": "micro-batch 2",
    "nemo/ablation/3": "29667 and 33185",
    "nemo/ablation/6": "EMA",
    "nemo/ablation/11": "29667 and 33185",
    "nemo/ablation/12": "copied",
    "nemo/ablation/13": "copied",
    "nemo/l20/5": "125.8",
    "nemo/h20/6": "the command says 64",
    "nemo/h20/9": "40 and 320",
    "nemo/h20/10": "127.0",
    "nemo/timeline-1gpu-bs32/2": "22784",
    "nemo/version-1/17": "swapped",
    "nemo/version-1/23": "stands twice",
    "nemo/version-1/24": "stands twice",
    "nemo/version-1/37": "the command says 64",
    "nemo/version-1/40": "two empty cells",
    "aws-mosaicml/single-node/1/Ratio": "1.3265",
    "aws-mosaicml/single-node/6/Ratio": "1.8249",
    "aws-mosaicml/progress/2": "two nodes take longer",
    "mig-tensorrt/slice-inference/2": "1g.10gb+me",
    "mig-tensorrt/int8/2": "screenshots",
    "comfyui/resolution/4": "yet less time",
    "comfyui/steps/1/1": "did not settle",
    "comfyui/steps/2/2": "did not settle",
    "comfyui/cfg/2": "five tries",
    "comfyui/kernels/2": "64 warps",
    "performance/floors/3": "218.3",
    "performance/published/1/MII": "1.268",
}

Place = tuple[Source, Table, Row]
ROWS: list[Place] = [
    (source, table, row) for source in sources() for table in source.tables for row in table.rows
]


def test_every_table_is_there_with_every_row() -> None:
    found = {source.name: {table.name: len(table.rows) for table in source.tables} for source in sources()}
    assert found == TABLES


def test_each_source_names_its_file_and_each_table_its_place() -> None:
    files = [source.file for source in sources()]
    assert sorted(file[:3] for file in files if file.endswith(".txt")) == ["000", "001", "002", "003", "004"]
    assert "performance.md" in files
    for source in sources():
        headed = [table.line for table in source.tables if table.columns]
        assert headed == sorted(set(headed))


def test_rows_stand_in_the_order_of_their_source_and_have_one_id_each() -> None:
    ids = [entry.id for entry in entries()]
    assert len(set(ids)) == len(ids) == sum(sum(tables.values()) for tables in TABLES.values())
    for source in sources():
        for table in source.tables:
            numbers = [row.row for row in table.rows]
            assert sorted(set(numbers)) == list(range(1, max(numbers) + 1)), table.name
            assert numbers == sorted(numbers)


def test_every_figure_is_in_a_unit_of_its_kind() -> None:
    figures = [figure for _, _, row in ROWS for figure in row.figures]
    assert len(figures) > 400
    for figure in figures:
        assert figure.unit in UNITS[figure.what], figure
        assert figure.high is None or figure.high > figure.value


def test_a_row_without_figures_says_why() -> None:
    for _, table, row in ROWS:
        if row.outcome == "ok":
            assert row.figures, (table.name, row.row)


def test_failures_and_gaps_are_rows_too() -> None:
    found = {entry.id: entry.outcome for entry in entries() if entry.outcome not in ("ok", "not_given")}
    assert found == FAILED
    assert by_id("comfyui/steps-baseline/1").outcome == "not_given"
    assert by_id("aws-mosaicml/scaling/1").outcome == "not_given"


@pytest.mark.parametrize(("name", "words"), WRONG_OR_DOUBTFUL.items())
def test_known_mistakes_are_flagged_with_the_reason(name: str, words: str) -> None:
    assert words in " ".join(flag.reason for flag in by_id(name).flags)


def test_no_flag_is_lost() -> None:
    found = {source.name: sum(len(r.flags) for t in source.tables for r in t.rows) for source in sources()}
    assert found == {
        "aws-mosaicml": 4,
        "aws-mosaicml-charts": 20,
        "comfyui": 6,
        "deepspeed-mii": 0,
        "mig-tensorrt": 4,
        "nemo": 44,
        "performance": 3,
    }
    certainties = [flag.certainty for entry in entries() for flag in entry.flags]
    assert {kind: certainties.count(kind) for kind in certainties} == {"wrong": 38, "doubtful": 43}


def test_what_is_corrected_is_flagged() -> None:
    corrected = [row for _, _, row in ROWS if row.corrected]
    assert len(corrected) > 20
    for row in corrected:
        assert any(flag.certainty == "wrong" for flag in row.flags), row


def test_every_figure_of_a_whole_node_under_a_head_per_gpu_is_flagged() -> None:
    whole = [row for s, t, row in ROWS if s.name == "nemo" and t.columns and row.settings.gpus_per_node == 8]
    with_figure = [row for row in whole if any(figure.what == "throughput" for figure in row.figures)]
    assert len(with_figure) == 2 * (2 + 5 + 2) + 2
    assert all(any("samples/gpu/s" in flag.about for flag in row.flags) for row in with_figure)


def written(name: str) -> Row:
    return next(
        row
        for source, table, row in ROWS
        if f"{source.name}/{table.name}/{row.row}" == name and row.column is None
    )


def test_mistakes_stand_as_written_and_are_reckoned_with_corrected() -> None:
    assert (written("nemo/h20/6").settings.micro_batch, by_id("nemo/h20/6").settings.micro_batch) == (48, 64)
    swapped, right = written("nemo/version-1/17").settings, by_id("nemo/version-1/17").settings
    assert (swapped.gpus_per_node, swapped.num_nodes) == (1, 4)
    assert (right.gpus_per_node, right.num_nodes, right.num_gpus) == (4, 1, 4)
    assert written("nemo/benchmark/19").figures[0] == Figure(
        what="throughput", value=229, unit="samples/s/GPU"
    )
    assert by_id("nemo/benchmark/19").figures[0] == Figure(what="throughput", value=229, unit="samples/s")
    assert written("nemo/h20/10").figures[0].value == 127
    assert by_id("nemo/h20/10").figures == ()
    assert by_id("mig-tensorrt/slice-inference/2").settings.switches == {"gpcs": 1, "memory_gb": 10}


def test_the_229_is_on_a100_in_the_table_and_on_l20_in_the_conclusion() -> None:
    assert by_id("nemo/benchmark/19").settings.gpu == "A100 40G NVLINK"
    [claim] = [c for s in sources() for c in s.claims if c.name == "l20-best-per-node"]
    assert claim.figure is not None
    assert claim.figure.value == 229
    assert "8 A100" in claim.flags[0].reason


SPOTS: dict[str, tuple[dict[str, Any], list[tuple[str, float, str]]]] = {
    "nemo/benchmark/8": (
        {"gpu": "H800 PCIE", "micro_batch": 64, "precision": "fp16", "model": "sd1", "data": "synthetic"},
        [
            ("throughput", 44.07, "samples/s/GPU"),
            ("samples", 100_000, "samples"),
            ("time", 2269, "s"),
            ("peak_memory", 80747, "MiB"),
            ("total_memory", 81559, "MiB"),
        ],
    ),
    "nemo/ablation/9": (
        {"gpu": "A100 40G NVLINK", "switches": {"model.channels_last": False}},
        [
            ("throughput", 24.0, "samples/s/GPU"),
            ("samples", 62752, "samples"),
            ("time", 2617, "s"),
            ("peak_memory", 33185, "MiB"),
            ("total_memory", 40960, "MiB"),
        ],
    ),
    "aws-mosaicml/single-node/7/P5 Throughput": (
        {"gpu": "H100 80GB (P5)", "micro_batch": 32, "ema": True, "num_gpus": 8, "width": 512},
        [("throughput", 385.31, "samples/s")],
    ),
    "aws-mosaicml/single-node/6/P4de Throughput": (
        {"gpu": "A100 80GB (P4de)", "micro_batch": 20, "ema": False},
        [("throughput", 197.90, "samples/s")],
    ),
    "deepspeed-mii/mii/5": (
        {"steps": 50, "batch": 1, "precision": "fp16"},
        [("step_rate", 43.72, "it/s"), ("time", 1.2626, "s"), ("count", 51, "pieces")],
    ),
    "comfyui/batch/6": (
        {"batch": 32, "width": 512, "height": 512, "steps": 20, "cfg": 8.0},
        [("peak_memory", 27.6, "GB"), ("time", 23.35, "s"), ("step_time", 0.925, "s/step")],
    ),
    "comfyui/resolution/3": (
        {"batch": 4, "width": 1280, "height": 768},
        [("peak_memory", 14.7, "GB"), ("time", 12.52, "s"), ("step_time", 0.492, "s/step")],
    ),
    "performance/published/6": (
        {"gpu": "H200", "num_gpus": 8, "precision": "fp8", "steps": 20, "sampler": "euler"},
        [("throughput", 19.19, "samples/s"), ("throughput", 2.4, "samples/s/GPU")],
    ),
    "performance/ceilings/6": ({"gpu": "H200"}, [("copy_rate", 4.28, "TB/s")]),
}


@pytest.mark.parametrize("name", SPOTS)
def test_spot_rows(name: str) -> None:
    settings, figures = SPOTS[name]
    entry = by_id(name)
    assert {key: getattr(entry.settings, key) for key in settings} == settings
    assert [(figure.what, figure.value, figure.unit) for figure in entry.figures] == figures


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def reckoned(text: str) -> float:
    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        assert isinstance(node, ast.Constant)
        return float(str(node.value))

    return value(ast.parse(text, mode="eval").body)


def test_the_arithmetic_in_cells_gives_their_figures() -> None:
    checked = 0
    for _, _, row in ROWS:
        for column in ("samples/gpu/s", "samples/sec"):
            expression, _, rest = row.written.get(column, "").partition("=")
            if rest:
                [figure] = [figure for figure in row.figures if figure.what == "throughput"]
                assert reckoned(expression) == pytest.approx(figure.value, abs=6e-3), row
                checked += 1
    assert checked == 9 + 2 + 2 + 8


def test_samples_and_time_of_a_row_give_its_throughput_unless_it_is_flagged() -> None:
    checked = 0
    for entry in entries():
        values = {figure.what: figure for figure in entry.figures}
        if {"samples", "time", "throughput"} <= values.keys():
            gpus = 1 if values["throughput"].unit == "samples/s" else entry.settings.num_gpus or 1
            expected = values["samples"].value / values["time"].value / gpus
            agrees = expected == pytest.approx(values["throughput"].value, rel=1e-3)
            assert agrees != any("samples and time" in flag.reason for flag in entry.flags), entry
            checked += 1
    assert checked == 18


def test_readings_of_progress_bars_give_the_rows_of_the_h20() -> None:
    checked = 0
    for place in [name for name in TABLES["nemo"] if name.startswith("timeline")]:
        start, end = (
            {figure.what: figure.value for figure in by_id(f"nemo/{place}/{row}").figures} for row in (1, 2)
        )
        rate = (end["samples"] - start["samples"]) / (end["clock"] - start["clock"])
        twin = by_id(str(by_id(f"nemo/{place}/2").repeats))
        assert rate == pytest.approx(end["throughput"], abs=6e-4)
        assert rate == pytest.approx(twin.figures[0].value, abs=6e-3)
        assert twin.settings.micro_batch == by_id(f"nemo/{place}/2").settings.micro_batch
        checked += 1
    assert checked == 8


def test_memory_in_use_is_within_the_card() -> None:
    for entry in entries():
        used = [figure for figure in entry.figures if figure.what == "peak_memory" and figure.unit == "MiB"]
        there = [figure for figure in entry.figures if figure.what == "total_memory" and figure.unit == "MiB"]
        for one, other in zip(used, there, strict=False):
            assert one.value < other.value


def test_what_is_repeated_is_there_and_counts_once() -> None:
    ids = {entry.id for entry in entries()}
    places = ids | {name.rpartition("/")[0] for name in ids}
    repeated = [entry.repeats for entry in entries() if entry.repeats]
    assert set(repeated) <= places
    # The second big table only gathers what the ones before it have.
    assert sum(entry.id.startswith("nemo/version-1/") for entry in entries() if entry.repeats) == 41
    assert not [entry for entry in distinct() if entry.repeats]


def test_trials_count_as_their_mean() -> None:
    [mean] = [entry for entry in distinct() if entry.id == "deepspeed-mii/baseline"]
    assert mean.trials == 5
    assert mean.figures[1].value == pytest.approx((2.3496 + 2.3371 + 2.3185 + 2.3274 + 2.3148) / 5)


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "furlongs"},
        {"value": "17.1"},
        {"value": float("nan")},
        {"colour": "green"},
    ],
)
def test_what_is_not_well_formed_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Figure.model_validate({"what": "throughput", "value": 17.1, "unit": "samples/s"} | change)


def test_settings_lie_over_those_of_their_table() -> None:
    table = Settings(gpu="L20", steps=20, switches={"a": 1})
    row = Settings(steps=30, switches={"b": 2})
    assert row.over(table) == Settings(gpu="L20", steps=30, switches={"a": 1, "b": 2})
    assert Settings().num_gpus is None
    assert Settings(gpus_per_node=8, num_nodes=2).num_gpus == 16


def test_the_two_charts_of_one_source_agree() -> None:
    """Read off two pictures of the same runs, throughput and speed-up differ by less than a pixel or two."""
    chart = {e.settings.num_nodes: e.figures[0].value for e in entries() if "charts/throughput" in e.id}
    ratios = {e.settings.num_nodes: e.figures[0].value for e in entries() if "charts/speed-up" in e.id}
    assert len(ratios) == 8
    for nodes, ratio in ratios.items():
        assert chart[nodes] / chart[1] == pytest.approx(ratio, rel=0.02), nodes
