"""The options of a worker, and their conversion to and from its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_ROWS = 32
"""16 images with guidance: more gain little and delay all jobs."""
MAX_ROWS_ON_CPU = 16


@dataclass(frozen=True)
class WorkerOptions:
    """The device of a worker, its settings and its initial models."""

    models: tuple[str, ...] = ("emoji",)
    """Models to load before the worker sends Hello."""
    device: str | None = None
    """cpu, cuda or cuda:0; default: the first GPU, or the CPU."""
    preset: str = "baseline"
    precision: str | None = None
    memory_bytes: int | None = None
    """Memory for weights; default: a fraction of the free memory."""
    models_folder: Path | None = None
    max_rows: int | None = None
    """Rows of an evaluation, two per image with guidance; default 16 on a CPU and 32 on a GPU."""
    warm: bool = False
    """Run the shapes of a prebuilt engine, and on a GPU every batch size, before sending Hello."""
    engine: str = "calotype"
    """`calotype`; or `nothing`, which makes tiny images at once; `nothing:8` has memory for 8 rows."""

    def as_arguments(self) -> list[str]:
        """Return the command line that `parsed` reads."""
        arguments = [f"--model={model}" for model in self.models]
        for name in ("device", "preset", "precision", "memory_bytes", "models_folder", "max_rows", "engine"):
            value = getattr(self, name)
            if value is not None:
                arguments.append(f"--{name.replace('_', '-')}={value}")
        return [*arguments, "--warm"] if self.warm else arguments


def most_rows(max_rows: int | None, device: str) -> int:
    """Return the most rows of an evaluation: `max_rows` or the default of the device."""
    return max_rows or (MAX_ROWS_ON_CPU if device == "cpu" else MAX_ROWS)


def parsed(arguments: Sequence[str]) -> tuple[int, WorkerOptions]:
    """Parse a command line into the socket's file descriptor and the options."""
    parser = argparse.ArgumentParser(prog="python -m calotype.serve.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="file descriptor of the inherited socket")
    parser.add_argument(
        "--model", action="append", default=[], dest="models", help="model to load; repeatable"
    )
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
