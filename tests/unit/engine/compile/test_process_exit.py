"""Whoever compiles for somebody ends with them, and so do the compilers it has started."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from calotype.engine.compile.manager import CompileAbandonedError
from calotype.engine.compile.subprocess_compiler import _Process

BUSY = """
import os, subprocess, sys
from calotype.engine.compile import worker_process

def compile_for_minutes(order):
    os.write(order["tell"], b"b")
    subprocess.run(["sleep", "60"], pass_fds=(order["tell"],))

worker_process.compile_request = compile_for_minutes
worker_process.main()
"""
PATIENCE_S = 30


@pytest.fixture
def told() -> Iterator[tuple[int, int]]:
    """A pipe: who compiles writes to it, and it ends when neither they nor their compilers have it."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def ends(reading: int) -> bool:
    return bool(select.select([reading], [], [], PATIENCE_S)[0]) and os.read(reading, 1) == b""


def test_a_compiler_ends_with_who_ordered_however_that_one_ends(
    told: tuple[int, int], tmp_path: Path
) -> None:
    reading, writing = told
    ordering = f"""
import os, subprocess, sys
from calotype.engine.compile import subprocess_compiler

start = subprocess.Popen
subprocess_compiler.subprocess.Popen = lambda _, **how: start(
    [sys.executable, "-c", {BUSY!r}], **how, pass_fds=({writing},)
)
subprocess_compiler._Process().answer('{{"tell": {writing}}}')
"""
    given = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", ordering], pass_fds=(writing,), env=given) as orders:
        os.close(writing)
        assert os.read(reading, 1) == b"b"
        orders.kill()
    assert ends(reading)


def test_what_an_ended_process_left_is_removed_by_the_next_and_what_others_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = (
        "import os; from calotype.engine.compile.subprocess_compiler import _Process; _Process(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", leaving], check=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, other = _Process(), _Process()
    assert not left.exists()
    assert set(tmp_path.iterdir()) == {one.folder, other.folder}
    for each in (one, other):
        each.end()
    assert not list(tmp_path.iterdir())


def test_one_that_had_nothing_to_do_for_a_while_ends_well() -> None:
    """And is then started again, which one that failed is not."""
    idle = "from calotype.engine.compile import worker_process as child; "
    idle += "child._IDLE_S = 0; child.main()"
    with subprocess.Popen([sys.executable, "-c", idle], stdin=subprocess.PIPE) as waiting:
        assert waiting.wait(PATIENCE_S) == 0


def test_a_compiler_that_is_ended_takes_those_it_has_started_along(
    told: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = told
    start = subprocess.Popen
    command = [sys.executable, "-c", BUSY]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **how: start(command, **how, pass_fds=(writing,)))
    process = _Process()
    child = process._running()
    os.close(writing)
    assert child.stdin
    child.stdin.write(f'{{"tell": {writing}}}\n')
    child.stdin.flush()
    assert os.read(reading, 1) == b"b"
    process.end()
    assert ends(reading)
    with pytest.raises(CompileAbandonedError):
        process.answer("{}")
