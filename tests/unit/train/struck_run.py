"""A program: `calotype` with the words after the first two, which sends itself a signal at a chosen moment.

python -m tests.unit.train.struck_run SIGTERM step:2 train RECIPE KEY=VALUE...

`step:N` is after the metrics of step N are written; `manifest:N` is in the middle of the save of step N, when
all its files are there and only what makes it complete is missing.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from calotype.cli.main import run
from calotype.train.checkpoint import assembly
from calotype.train.watching import MetricsFile


def strike(name: str, moment: str) -> None:
    """Arrange for the signal."""
    place, _, number = moment.partition(":")
    owner: Any = MetricsFile if place == "step" else assembly
    function = "after_step" if place == "step" else "write_manifest"
    real = getattr(owner, function)

    def struck(*arguments: Any) -> None:
        if place == "step":
            real(*arguments)
        if arguments[1].step == int(number):
            os.kill(os.getpid(), signal.Signals[name])
        if place != "step":
            real(*arguments)

    setattr(owner, function, struck)


if __name__ == "__main__":
    strike(*sys.argv[1:3])
    sys.exit(run(sys.argv[3:]))
