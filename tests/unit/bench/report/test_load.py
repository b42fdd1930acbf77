"""What files may hold, and what becomes of lines that are no record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calotype.bench.report.load import gather
from calotype.core.errors import NotFoundError, RequestError
from tests.unit.bench.report.samples import ceiling, picture, stored
from tests.unit.cli.conftest import Calotype

_RATE = {"samples_per_s": 0.5}
TRAINING = Path(__file__).parents[4] / "benchmarks" / "2026-11-15-training"


def test_reads_several_files_of_every_kind_and_folders_of_runs(tmp_path: Path) -> None:
    [run] = stored(tmp_path / "run", picture("one", 1.0), picture("two", 2.0))
    roofs = tmp_path / "ceilings.jsonl"
    roofs.write_text(json.dumps(ceiling().model_dump(mode="json")))
    found = gather([run.parent, roofs, TRAINING / "ours-in-loop.json"])
    assert [one.measurement.point for one in found.stored] == ["one", "two", "ours-in-loop"]
    assert [one.measurement.kind for one in found.stored] == ["inference", "inference", "train"]
    assert [one.device for one in found.ceilings] == ["NVIDIA H200"]
    assert found.faults == []


def test_names_file_and_line_of_what_is_no_record(tmp_path: Path) -> None:
    [file] = stored(tmp_path, picture("one", 1.0))
    good = file.read_bytes()
    file.write_bytes(
        b"\xff\xfe no text\n"
        + good
        + b'\n[1, 2]\n{"format": "other.1"}\n{"format": "calotype.measurement.1"}\n'
    )
    found = gather([file])
    assert [one.line for one in found.stored] == [2]
    assert [fault.line for fault in found.faults] == [1, 4, 5, 6]
    assert "other.1" in found.faults[2].reason
    assert "id" in found.faults[3].reason


def test_a_page_lists_them_at_its_end(tmp_path: Path, calotype: Calotype) -> None:
    [file] = stored(tmp_path / "run", picture("one", 1.0))
    with file.open("a") as out:
        out.write('{"torn')
    outcome = calotype("report", file, "--out", tmp_path / "out")
    assert outcome.code == 0
    assert f"{file}:2: " in outcome.err
    for name in ("report.html", "report.md"):
        text = (tmp_path / "out" / name).read_text()
        assert text.rindex("Unreadable lines") > text.rindex("All points")
        assert "Unterminated string" in text


@pytest.mark.parametrize(
    ("value", "no_number"), [('"samples_per_s":0.5', '"samples_per_s":NaN'), ("[1.0,3.0]", "[1.0,Infinity]")]
)
def test_what_is_no_number_is_a_line_that_is_no_record(
    tmp_path: Path, calotype: Calotype, value: str, no_number: str
) -> None:
    [file] = stored(tmp_path / "run", picture("one", 2.0), picture("two", 1.0, 3.0).model_copy(update=_RATE))
    text = file.read_text()
    assert text.count(value) >= 1
    head, _, rest = text.rpartition(value)
    file.write_text(head + no_number + rest)
    outcome = calotype("report", file, "--out", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert f"{file}:2: " in outcome.err
    assert "is not a finite number" in outcome.err


def test_nothing_to_show_is_an_error_that_says_what_was_found(tmp_path: Path, calotype: Calotype) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("not JSON\n")
    outcome = calotype("report", file, "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "nothing to show" in outcome.err
    assert f"{file}:1" in outcome.err
    assert not (tmp_path / "out").exists()
    with pytest.raises(RequestError, match="nothing to show"):
        gather([tmp_path / "records.jsonl"])


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nowhere\.jsonl"):
        gather([tmp_path / "nowhere.jsonl"])


def test_a_folder_that_cannot_be_written(tmp_path: Path, calotype: Calotype) -> None:
    [file] = stored(tmp_path / "run", picture("one", 1.0))
    outcome = calotype("report", file, "--out", file)
    assert (outcome.code, "--out" in outcome.err) == (2, True)


def test_the_committed_training_benchmark_makes_a_report(tmp_path: Path, calotype: Calotype) -> None:
    outcome = calotype("report", *sorted(TRAINING.glob("*.json")), "--out", tmp_path / "out")
    assert outcome.code == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert "163.6" in text
    assert "50.3%" in text
    assert text.count("plain-") == 3, "the peers' files are of another format, and listed"
    assert "with uncommitted changes" in text
