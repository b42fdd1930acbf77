"""What jobs printed: each line once and whole, however it is read and whoever writes meanwhile."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from calotype.launch.backend import JobRecord, LogsWanted
from calotype.launch.log_files import lines_of
from tests.unit.launch.specs import HERE, spec


@pytest.fixture
def record(tmp_path: Path) -> JobRecord:
    (tmp_path / "logs").mkdir()
    return JobRecord(
        id="here-1",
        backend="local",
        handle="1:1",
        folder=str(tmp_path),
        spec=spec(HERE),
        files=("job.sh",),
        submitted_at="2026-01-01T00:00:00+00:00",
    )


@pytest.fixture
def log(record: JobRecord) -> Path:
    return record.logs / "node-0.log"


def append(log: Path, text: str) -> None:
    with log.open("a", encoding="utf-8", newline="") as file:
        file.write(text)


def test_what_is_written_while_somebody_reads_is_told_once(record: JobRecord, log: Path) -> None:
    append(log, "one\ntwo\n")
    lines = lines_of(record, LogsWanted(follow=True), lambda: True)
    assert next(lines) == "one"
    append(log, "three\nfo")
    assert next(lines) == "two"
    append(log, "ur\n")
    assert list(lines) == ["three", "four"]


def test_half_a_line_waits_for_its_rest_and_keeps_its_rank(record: JobRecord, log: Path) -> None:
    append(log, "[rank1]: step 1\n[rank1]: st")
    over = iter([False, True])

    def is_over() -> bool:
        append(log, "ep 2\n[rank0]: step 2\n[rank1]: la")
        return next(over)

    lines = lines_of(record, LogsWanted(rank=1, follow=True, lines=1), is_over)
    assert list(lines) == ["step 1", "step 2", "laep 2", "la"]


def test_the_last_words_need_no_end_of_line(record: JobRecord, log: Path) -> None:
    append(log, "starts\nKilled")
    for follow in (False, True):
        assert list(lines_of(record, LogsWanted(follow=follow), lambda: True)) == ["starts", "Killed"]


def test_lines_are_the_same_followed_or_not(record: JobRecord, log: Path) -> None:
    log.write_bytes("10%\r20%\na\u2028b\x0cc\n".encode() + b"\xff\x00\n\n")
    told = ["10%\r20%", "a\u2028b\x0cc", "\ufffd\x00", ""]
    for follow in (False, True):
        assert list(lines_of(record, LogsWanted(follow=follow), lambda: True)) == told


def test_the_last_lines_of_a_large_log_take_little_memory(record: JobRecord, log: Path) -> None:
    size = 4 * 2**20
    log.write_bytes(b"[rank0]: a line of some length\n" * (size // 31))
    tracemalloc.start()
    try:
        assert len(list(lines_of(record, LogsWanted(lines=5), lambda: True))) == 5
        assert tracemalloc.get_traced_memory()[1] < size / 8
    finally:
        tracemalloc.stop()
