"""What the storm looks for, it would find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults import ledger
from tests.faults.checks import check_jobs


def job(key: str, **values: Any) -> dict[str, Any]:
    return {"id": f"id-of-{key}", "idempotency_key": key, "state": "done", "failure": None, **values}


@pytest.fixture
def promises(tmp_path: Path) -> ledger.Promises:
    book = ledger.Ledger(tmp_path / "book")
    for key in ("a", "b"):
        book.note(key=key)
        book.note(key=key, id=f"id-of-{key}")
    book.note(key="a", job=job("a"))
    return ledger.read(tmp_path / "book")


def test_what_adds_up_passes(promises: ledger.Promises) -> None:
    assert promises.open == {"b"}
    check_jobs(promises, [job("a"), job("b")])


@pytest.mark.parametrize(
    ("jobs", "word"),
    [
        ([job("a")], "not there"),
        ([job("a"), job("b"), job("c")], "nobody asked for"),
        ([job("a"), job("b"), job("b", id="another")], "more than one"),
        ([job("a"), job("b", id="another")], "was promised as"),
        ([job("a"), job("b", state="failed")], "did not end well"),
        ([job("a"), job("b", state="running")], "did not end well"),
        ([job("a", ended_at=2.0), job("b")], "changed after it had ended"),
    ],
)
def test_what_does_not_is_found(promises: ledger.Promises, jobs: list[dict[str, Any]], word: str) -> None:
    with pytest.raises(AssertionError, match=word):
        check_jobs(promises, jobs)


def test_a_torn_line_takes_nothing_with_it(tmp_path: Path) -> None:
    path = tmp_path / "book"
    path.write_bytes(b'{"key": "a"}\n{"key": "b", "i')
    ledger.Ledger(path).note(key="c", id="1")
    found = ledger.read(path)
    assert found.meant == {"a", "c"}
    assert found.accepted == {"c": {"1"}}
