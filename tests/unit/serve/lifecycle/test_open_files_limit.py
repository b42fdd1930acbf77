"""The server makes room for its connections where the system allows too few open files."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import logging, resource, sys
from calotype.serve.lifecycle.open_files_limit import raise_open_files_limit
from calotype.serve.settings import ServeSettings
logging.basicConfig(format="%(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[1])))
raise_open_files_limit(ServeSettings(most_connections=100))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("hard", "said"), [(4096, "1424\n"), (1000, "the limit of open files is 1000, and 100 connections")]
)
def test_the_limit_of_open_files_is_raised_as_far_as_possible(hard: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(hard)], check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith(said)
    assert done.stdout.endswith(f"{min(hard, 1424)}\n")
