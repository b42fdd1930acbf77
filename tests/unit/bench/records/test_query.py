"""Questions to all records: answered from the documented tables, and nothing else can be done with them."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from calotype.bench.records.columns import COLUMNS, SAMPLE_COLUMNS
from calotype.bench.records.query import ask
from calotype.bench.records.store import append, read_all
from calotype.core.errors import RequestError
from calotype.spec.records.measurement import FILE, Likeness, PeakMemory, Preparation, Work
from tests.unit.bench.records.conftest import made_up
from tests.unit.cli.conftest import Calotype


@pytest.fixture
def records(tmp_path: Path) -> Path:
    rich = made_up(
        "fast",
        1.0,
        3.0,
        passes=["own_forward", "cuda_graph"],
        samples_per_s=1.0,
        preparation=Preparation(load_s=5.0, warmup_s=[9.0, 2.0], compile_s=7.0),
        memory=[PeakMemory(allocated_bytes=10, reserved_bytes=20, device_bytes=30, total_bytes=40)],
        work=Work(tflop_per_sample=50.0, tflops=25.0).under(100.0),
        quality=Likeness(reference="baseline", psnr_db=40.0, ssim=0.99),
        energy_j=8.0,
    )
    append(tmp_path / "a" / FILE, rich)
    append(tmp_path / "b" / FILE, made_up("large", status="oom", message="16 GiB wanted, 8 are free"))
    return tmp_path


def one_row(sql: str, records: Path) -> dict[str, object]:
    answer = ask(sql, read_all([records]).stored)
    [row] = answer.rows
    return dict(zip(answer.columns, row, strict=True))


def test_every_figure_has_its_column(records: Path) -> None:
    row = one_row("SELECT * FROM measurements WHERE status = 'ok'", records)
    assert list(row) == [column.name for column in COLUMNS]
    expected = {
        "point": "fast",
        "passes": "own_forward,cuda_graph",
        "batch": 2,
        "width": 64,
        "wall_median_s": 2.0,
        "wall_count": 2,
        "compile_s": 7.0,
        "warmup_s": 11.0,
        "device_bytes": 30,
        "share_of_ceiling": 0.25,
        "psnr_db": 40.0,
        "energy_per_sample_j": 2.0,
        "file": str(records / "a" / FILE),
    }
    assert {name: row[name] for name in expected} == expected


def test_failures_are_rows_and_raw_numbers_are_there(records: Path) -> None:
    failed = one_row("SELECT * FROM measurements WHERE status != 'ok'", records)
    assert (failed["point"], failed["message"], failed["wall_median_s"]) == (
        "large",
        "16 GiB wanted, 8 are free",
        None,
    )
    total = one_row("SELECT sum(value) AS total, max(number) AS last FROM samples", records)
    assert total == {"total": 4.0, "last": 2}


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM measurements",
        "CREATE TABLE t AS SELECT 1",
        "COPY measurements TO '{folder}/stolen.csv'",
        "ATTACH '{folder}/new.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM '{folder}/secret.csv'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT nonsense FROM measurements",
        "not sql",
        "",
    ],
)
def test_nothing_but_a_question_about_records(sql: str, records: Path) -> None:
    (records / "secret.csv").write_text("a\n1\n")
    before = sorted(records.rglob("*"))
    with pytest.raises(RequestError, match="query"):
        ask(sql.replace("{folder}", str(records)), read_all([records]).stored)
    assert sorted(records.rglob("*")) == before


def test_the_command_answers_as_table_csv_and_json(records: Path, calotype: Calotype) -> None:
    sql = "SELECT point, wall_median_s FROM measurements ORDER BY point"
    shown = calotype("bench", "query", sql, "--records", records)
    assert shown.code == 0
    assert "fast" in shown.out
    assert "large" in shown.out
    rows = list(csv.DictReader(io.StringIO(calotype("bench", "query", sql, "-r", records, "--csv").out)))
    assert rows == [{"point": "fast", "wall_median_s": "2.0"}, {"point": "large", "wall_median_s": ""}]
    told = json.loads(calotype("bench", "query", sql, "-r", records, "--json").out)
    assert told == [{"point": "fast", "wall_median_s": 2.0}, {"point": "large", "wall_median_s": None}]
    # Whatever the clock on the wall says.
    when = calotype("bench", "query", "SELECT started_at FROM measurements", "-r", records, "--json")
    assert json.loads(when.out)[0] == {"started_at": "2026-11-15 12:00:00"}


def test_json_has_every_column_and_null_for_what_is_no_number(records: Path, calotype: Calotype) -> None:
    sql = (
        "SELECT one.point, other.point, energy_j / 0 AS much, 'nan'::DOUBLE AS nan "
        "FROM measurements one JOIN samples other USING (id) WHERE number = 1"
    )
    told = calotype("bench", "query", sql, "-r", records, "--json")
    assert told.err == ""
    assert json.loads(told.out) == [{"point": "fast", "point_1": "fast", "much": None, "nan": None}]


def test_the_command_names_corrupt_lines_and_goes_on(records: Path, calotype: Calotype) -> None:
    (records / "c").mkdir()
    (records / "c" / FILE).write_text("half a line")
    told = calotype("bench", "query", "SELECT count(*) AS n FROM measurements", "-r", records, "--json")
    assert (told.code, json.loads(told.out)) == (0, [{"n": 2}])
    assert f"{records / 'c' / FILE}:1: " in told.err


def test_rows_of_training_benchmarks_are_asked_too(calotype: Calotype, tmp_path: Path) -> None:
    [row, *_] = sorted(Path(__file__).parents[4].glob("benchmarks/*-training/ours-in-loop.json"))
    told = calotype("bench", "query", "SELECT kind, model FROM measurements", "-r", row, "--json")
    assert (told.err, json.loads(told.out)) == ("", [{"kind": "train", "model": "sd2-base"}])
    told = calotype("bench", "query", "SELECT count(*) AS n FROM measurements", "-r", tmp_path, "--json")
    assert (told.err, json.loads(told.out)) == (f"no measurement in {tmp_path}\n", [{"n": 0}])


def test_the_command_says_what_is_missing(
    records: Path, calotype: Calotype, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "wall_median_s" in calotype("bench", "query", "--columns").out
    assert calotype("bench", "query").code == 2
    monkeypatch.setitem(sys.modules, "duckdb", None)
    told = calotype("bench", "query", "SELECT 1", "-r", records)
    assert (told.code, "calotype[query]" in told.err) == (2, True)


def test_the_documented_columns_are_those_there_are() -> None:
    documented = (Path(__file__).parents[4] / "docs" / "measuring.md").read_text(encoding="utf-8")
    rows = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in COLUMNS]
    rows += [f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in SAMPLE_COLUMNS.items()]
    assert [row for row in rows if row not in documented] == []
