"""The same program in several processes, which begin at the same moment. Knows nothing of what it does."""

import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from tests.warm_python import IMPORTED_FROM

PATIENCE_S = 120


def wait_for_the_others() -> None:
    """In such a program, when it has imported everything: until all have."""
    print("ready", flush=True)
    sys.stdin.read()


def together(words: Sequence[str], number: int) -> None:
    """`python -m WORDS` so many times; all have to end well."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, IMPORTED_FROM))}
    command, out = [sys.executable, "-m", *words], subprocess.PIPE
    reading, writing = os.pipe()
    with os.fdopen(reading) as waits, os.fdopen(writing, "w") as begins, ExitStack() as ends:
        processes = []
        for _ in range(number):
            process = subprocess.Popen(command, env=env, stdin=waits, stdout=out, stderr=out)
            processes.append(ends.enter_context(process))
            ends.callback(process.kill)
        for process in processes:
            _hear(process)
        begins.close()
        for process in processes:
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, said.decode()


def _hear(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        assert waiting.select(PATIENCE_S), f"not ready after {PATIENCE_S} s"
    process.stdout.readline()
