"""A warm Python does what a cold one does, as far as whoever starts it can see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import is_running
from tests.warm_python import start

PATIENCE_S = 60
TELLS = """import os, sys, atexit
atexit.register(print, "over")
print(sys.argv[1:], os.getcwd(), os.environ["COLOUR"], __name__, sys.stdin.read())
print("wrong", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
STAYS = """import os, pathlib, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
pathlib.Path("pid.new").write_text(str(os.getpid()))
os.rename("pid.new", "pid")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[str]:
    program, stop = start(())
    yield program
    stop()
    assert not Path(program).exists()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tells.py").write_text(TELLS)
    (tmp_path / "stays.py").write_text(STAYS)
    return tmp_path


def test_what_is_no_module_is_for_a_cold_one(warm: str) -> None:
    told = subprocess.run(
        [warm, "-IS", "-c", "import sys; print(sys.argv, sys.flags.isolated)", "-m", "two"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert told.stdout == "['-c', '-m', 'two'] 1\n"


def test_words_files_folder_variables_and_the_end_are_those_of_a_cold_one(warm: str, place: Path) -> None:
    told = [
        subprocess.run(
            [python, "-u", "-m", "tells", "3", "it's $HOME"],
            cwd=place,
            env={**os.environ, "COLOUR": "red"},
            input="given",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        for python in (warm, sys.executable)
    ]
    assert (told[0].returncode, told[0].stdout, told[0].stderr) == (3, told[1].stdout, "wrong\n")
    assert told[0].stdout == f"['3', \"it's $HOME\"] {place} red __main__ given\nover\n"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGUSR1, 7),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
@pytest.mark.parametrize("struck", ["program", "process"])
def test_signals_reach_the_process_and_its_end_the_program(
    warm: str, place: Path, number: signal.Signals, code: int, struck: str
) -> None:
    with subprocess.Popen([warm, "-m", "stays"], cwd=place) as program:
        pid = _soon(place / "pid")
        os.kill(program.pid if struck == "program" else pid, number)
        assert program.wait(PATIENCE_S) == code
    _until_gone(pid)


def test_nobody_outlives_the_tests(place: Path) -> None:
    program, stop = start(())
    with subprocess.Popen([program, "-m", "stays"], cwd=place) as stays:
        pid = _soon(place / "pid")
        stop()
        assert stays.wait(PATIENCE_S) == -signal.SIGKILL
    _until_gone(pid)


def _soon(note: Path) -> int:
    end = time.monotonic() + PATIENCE_S
    while not note.exists():
        assert time.monotonic() < end, "it does not start"
        time.sleep(0.01)
    return int(note.read_text())


def _until_gone(pid: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < end, f"{pid} goes on"
        time.sleep(0.01)
