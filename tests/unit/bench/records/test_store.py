"""Records are whole lines whoever writes at once, and a line in pieces costs only itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from calotype.bench.records.store import append, files_in, read, read_all
from calotype.core.errors import NotFoundError
from calotype.spec.records.measurement import FILE
from tests.unit.bench.records.conftest import made_up
from tests.unit.train.children import surroundings

WRITER = """
import sys
from pathlib import Path
from calotype.bench.records.store import append
from tests.unit.bench.records.conftest import made_up
file, name = Path(sys.argv[1]), sys.argv[2]
for number in range(40):
    append(file, made_up(f"{name}-{number}", 1.0, message=name * 20_000))
"""


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "run" / FILE
    ours = [made_up("one", 1.0, 2.0), made_up("two", status="oom", message="too large")]
    for one in ours:
        append(file, one)
    assert read(file).measurements == ours
    assert read(tmp_path / "nothing").stored == ()


def test_writers_in_several_processes_do_not_interleave(tmp_path: Path) -> None:
    file = tmp_path / FILE
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file), name], env=surroundings())
        for name in "abc"
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    lines = file.read_text().splitlines()
    points = [json.loads(line)["point"] for line in lines]
    assert sorted(points) == sorted(f"{name}-{number}" for name in "abc" for number in range(40))
    assert read(file).faults == ()


def test_a_corrupt_line_is_named_and_skipped(tmp_path: Path) -> None:
    file = tmp_path / FILE
    append(file, made_up("one"))
    with file.open("a") as out:
        out.write('{"format": "calotype.measurement.1", "id"\n{"format": "another"}\n')
    append(file, made_up("two"))
    reading = read(file)
    assert [one.point for one in reading.measurements] == ["one", "two"]
    assert [(fault.file, fault.line) for fault in reading.faults] == [(file, 2), (file, 3)]
    assert f"{file}:2: " in str(reading.faults[0])
    assert reading.stored[1].line == 4


def test_a_line_cut_off_by_a_kill_does_not_take_the_next_with_it(tmp_path: Path) -> None:
    file = tmp_path / FILE
    append(file, made_up("one"))
    append(file, made_up("cut"))
    file.write_bytes(file.read_bytes()[:-30])
    append(file, made_up("after"))
    reading = read(file)
    assert [one.point for one in reading.measurements] == ["one", "after"]
    assert [fault.line for fault in reading.faults] == [2]


def test_folders_are_searched_and_files_read_once(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        append(tmp_path / name / FILE, made_up(name))
    (tmp_path / "curve.jsonl").write_text("{}\n")
    assert [one.point for one in read_all([tmp_path, tmp_path / "a" / FILE]).measurements] == ["a", "b/c"]
    with pytest.raises(NotFoundError, match="nowhere"):
        files_in([tmp_path / "nowhere"])
