"""What is remembered about a training benchmark, and the row that is shown of it. Knows nothing of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

COLUMNS = (
    "GPU Type",
    "Task",
    "precision",
    "Datasets",
    "Devices",
    "Nodes",
    "Micro Batch",
    "Global Batch",
    "samples/gpu/s",
    "samples",
    "time consume",
    "command",
    "Memory",
)
FORMAT: Literal["calotype.train-benchmark.1"] = "calotype.train-benchmark.1"
_MIB = 2**20


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DeviceMemory(_Frozen):
    """The most one device held since the process started, compiling and warm-up included."""

    allocated_bytes: int
    """By tensors."""
    reserved_bytes: int
    """By torch for its tensors, which is nearly what nvidia-smi shows."""
    total_bytes: int


class Window(_Frozen):
    """The measured steps. The clock runs from one device synchronisation to another over all of them."""

    samples: int
    """Of all devices."""
    seconds: float
    samples_per_s: float
    samples_per_device_s: float
    host_step_s: list[float]
    """Of each step, as the first process's CPU sees it."""
    device_step_s: list[float] | None
    """Of each step between CUDA events; None without a GPU."""
    losses: list[float | None]
    """None where the loss was not a number and the recipe lets the update be left out."""
    tflop_per_sample: float | None
    """Counted work; None for models and sizes that nobody counted."""
    tflops_per_device: float | None
    mfu: float | None
    """Share of `ceiling_tflops` that was reached; None without one."""
    energy_j: float | None = None
    """What the device drew; None without a driver that counts, and of several devices."""


class BenchmarkRecord(_Frozen):
    """One row: what was run, where, and what came of it."""

    format: Literal["calotype.train-benchmark.1"] = FORMAT
    outcome: Literal["OK", "OOM", "Error!"]
    message: str | None
    """Why there is no window."""
    gpu: str
    command: str
    recipe: dict[str, Any]
    devices: int
    nodes: int
    warmup_steps: int
    warmup_step_s: list[float]
    """The first one holds compiling."""
    steps: int
    ceiling_tflops: float | None
    ceiling_source: Literal["given", "measured"] | None = None
    """Whether somebody said it, or a large matrix product was measured before the run."""
    window: Window | None
    memory: list[DeviceMemory]
    """One for each device of the run; after a failure, of the device that failed. Empty on the CPU."""
    fingerprint: dict[str, Any]
    started_at: AwareDatetime | None = None
    """None in records from before it was noted."""
    seconds_in_all: float | None = None
    """Of the whole process, where whoever started it took the time."""

    def row(self) -> dict[str, str]:
        """The cells by column."""
        model, window = self.recipe["model"], self.window
        failed = self.outcome if self.message is None else f"{self.outcome} {self.message}"
        cells = (
            self.gpu,
            str(model["base"]),
            str(model["precision"]),
            str(self.recipe["data"]["kind"]),
            str(self.devices),
            str(self.nodes),
            str(model["micro_batch_size"]),
            str(model["global_batch_size"]),
            failed if window is None else f"{window.samples_per_device_s:.2f}",
            "" if window is None else str(window.samples),
            "" if window is None else _clock(window.seconds),
            self.command,
            ", ".join(f"{m.reserved_bytes // _MIB}MiB / {m.total_bytes // _MIB}MiB" for m in self.memory),
        )
        return dict(zip(COLUMNS, cells, strict=True))

    def markdown(self) -> str:
        """The row as a table with its head."""
        return markdown([self.row()])

    def figures(self) -> dict[str, str]:
        """What the tables people compare with do not have, by column."""
        mfu = self.window.mfu if self.window else None
        return {
            "MFU": "" if mfu is None else f"{mfu:.1%}",
            "outcome": self.outcome,
            "peak memory": ", ".join(f"{m.allocated_bytes // _MIB}MiB" for m in self.memory),
        }


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same columns as a table with its head."""
    columns = list(rows[0])
    lines = [columns, [":-:"] * len(columns), *([_cell(text) for text in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _clock(seconds: float) -> str:
    """Minutes and seconds as the tables have them; short windows to the hundredth."""
    if seconds < 60:
        return f"{seconds:.2f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
