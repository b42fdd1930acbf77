"""A program: `calotype` with a network that is compiled at one of its calls, and told to stop while it is.

python -m tests.unit.train.compiling_run HOW SIGNAL CALL train RECIPE KEY=VALUE...

The compiler signals the whole process group, itself included, as schedulers and terminals do. HOW: a `slow`
one does not end by itself then, a `quick` one does, a `deep` one is waited for in code that is not Python's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from typing import Any

from torch import nn

from calotype.cli.main import run
from calotype.train import signals, trainer

_AND_THEN = {"slow": "exec sleep 600", "quick": "true", "deep": "exec sleep 600"}


def compile_with(how: str, signal_name: str) -> None:
    script = f"kill -s {signal_name.removeprefix('SIG')} 0; {_AND_THEN[how]}"
    if how == "deep":
        os.system(script)
        return
    code = subprocess.Popen(["/bin/sh", "-c", script]).wait()
    if code:
        raise RuntimeError(f"the compiler ended with {code}")


def compile_at(call: int, how: str, signal_name: str) -> None:
    """Have the network compiled at its call of that number."""

    def compiled(network: nn.Module, _recipe: object) -> nn.Module:
        calls = count(1)

        def prepare(*_: Any) -> None:
            if next(calls) == call:
                compile_with(how, signal_name)

        network.register_forward_pre_hook(prepare)
        return network

    vars(trainer)["compiled"] = compiled


if __name__ == "__main__":
    if sys.argv[1] == "deep":
        signals.GRACE_S = 0.2
    compile_at(int(sys.argv[3]), sys.argv[1], sys.argv[2])
    sys.exit(run(sys.argv[4:]))
