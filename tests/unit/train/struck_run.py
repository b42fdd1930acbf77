"""A program: `calotype` with the words after the first two, which sends itself a signal at a chosen moment.

python -m tests.unit.train.struck_run SIGTERM step:2 train RECIPE KEY=VALUE...

`step:N` is after the metrics of step N are written; `manifest:N` is in the middle of the save of step N, when
all its files are there and only what makes it complete is missing; `update:N` is after update N on the second
rank. `update:3,manifest:4` strikes what torchrun starts in its place a second time, and then no more.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from calotype.cli.main import run
from calotype.train.callbacks.loggers import MetricsFile
from calotype.train.checkpoint import writer
from calotype.train.trainer import Trainer
from tests.stop_signals import tell_to_stop


def strike(name: str, moment: str) -> None:
    """Arrange for the signal."""
    place, _, number = moment.partition(":")
    owner, function = PLACES[place]
    real = getattr(owner, function)

    def strike_at(step: int) -> None:
        if step == int(number):
            tell_to_stop(signal.Signals[name])

    def struck(*arguments: Any) -> Any:
        if place == "manifest":
            strike_at(arguments[1].step)
        answer = real(*arguments)
        if place == "step":
            strike_at(arguments[1].step)
        if place == "update" and os.environ["RANK"] == "1":
            strike_at(answer.step)
        return answer

    setattr(owner, function, struck)


PLACES: dict[str, tuple[Any, str]] = {
    "step": (MetricsFile, "after_step"),
    "manifest": (writer, "write_manifest"),
    "update": (Trainer, "update"),
}

if __name__ == "__main__":
    _moments, _start = sys.argv[2].split(","), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if _start < len(_moments):
        strike(sys.argv[1], _moments[_start])
    sys.exit(run(sys.argv[3:]))
