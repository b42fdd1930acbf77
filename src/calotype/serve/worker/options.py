"""How a worker is started, as the server says it and as the command line carries it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_ROWS = 32
"""Sixteen pictures with guidance: more gain little and delay everybody."""
MAX_ROWS_ON_CPU = 16


@dataclass(frozen=True)
class WorkerOptions:
    """Which device a worker uses, how, and what it holds from the start."""

    models: tuple[str, ...] = ("emoji",)
    """Loaded before it says hello."""
    device: str | None = None
    """cpu, cuda or cuda:0; the first GPU or the CPU if not said."""
    preset: str = "baseline"
    precision: str | None = None
    memory_bytes: int | None = None
    """For weights; a share of what is free if not said."""
    models_folder: Path | None = None
    max_rows: int | None = None
    """Of an evaluation, two for a picture with guidance; 16 on a CPU and 32 on a GPU if not said."""
    warm: bool = False
    """Run the shapes of a prepared engine, and on a GPU every number of pictures together, before saying
    hello."""
    engine: str = "calotype"
    """`calotype`; or `nothing`, which makes tiny pictures at once: `nothing:8` with memory for 8 rows."""

    def as_arguments(self) -> list[str]:
        """The command line that `parsed` reads."""
        arguments = [f"--model={model}" for model in self.models]
        for name in ("device", "preset", "precision", "memory_bytes", "models_folder", "max_rows", "engine"):
            value = getattr(self, name)
            if value is not None:
                arguments.append(f"--{name.replace('_', '-')}={value}")
        return [*arguments, "--warm"] if self.warm else arguments


def most_rows(max_rows: int | None, device: str) -> int:
    """Rows of an evaluation on the device of this name, as said or as is usual."""
    return max_rows or (MAX_ROWS_ON_CPU if device == "cpu" else MAX_ROWS)


def parsed(arguments: Sequence[str]) -> tuple[int, WorkerOptions]:
    """The socket's number and the options, from a command line."""
    parser = argparse.ArgumentParser(prog="python -m calotype.serve.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="number of the inherited socket")
    parser.add_argument("--model", action="append", default=[], dest="models", help="may be given again")
    parser.add_argument("--device")
    parser.add_argument("--preset", default=WorkerOptions.preset)
    parser.add_argument("--precision")
    parser.add_argument("--memory-bytes", type=int)
    parser.add_argument("--models-folder", type=Path)
    parser.add_argument("--max-rows", type=int)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--engine", default=WorkerOptions.engine)
    values = vars(parser.parse_args(arguments))
    fd = int(values.pop("fd"))
    return fd, WorkerOptions(**{**values, "models": tuple(values["models"])})
