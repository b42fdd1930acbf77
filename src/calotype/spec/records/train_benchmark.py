"""Record of a training benchmark, and its table row."""

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
    """Peak memory of one device since process start, including compilation and warm-up."""

    allocated_bytes: int
    """By tensors."""
    reserved_bytes: int
    """By torch for its tensors, which is nearly what nvidia-smi shows."""
    total_bytes: int


class Window(_Frozen):
    """The measured steps, timed from one device synchronization to another over all of them."""

    samples: int
    """Samples of all devices."""
    seconds: float
    samples_per_s: float
    samples_per_device_s: float
    host_step_s: list[float]
    """Time of each step on the host, in the first process."""
    device_step_s: list[float] | None
    """Time of each step between CUDA events; None without a GPU."""
    losses: list[float | None]
    """None where the loss was not finite and the recipe allows skipping the update."""
    tflop_per_sample: float | None
    """Counted work; None for models and sizes without a count."""
    tflops_per_device: float | None
    mfu: float | None
    """Share of `ceiling_tflops` that was reached; None without one."""
    energy_j: float | None = None
    """Energy of the device; None if the driver does not report it, and for several devices."""


class BenchmarkRecord(_Frozen):
    """One row: what was run, where, and the results."""

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
    """The first one includes compilation."""
    steps: int
    ceiling_tflops: float | None
    ceiling_source: Literal["given", "measured"] | None = None
    """Whether it was given, or measured with a large matrix product before the run."""
    window: Window | None
    memory: list[DeviceMemory]
    """One for each device of the run; after a failure, of the device that failed. Empty on the CPU."""
    fingerprint: dict[str, Any]
    started_at: AwareDatetime | None = None
    """None in older records."""
    seconds_in_all: float | None = None
    """Duration of the whole process, if its parent measured it."""

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
        """The row as a Markdown table with heading."""
        return markdown([self.row()])

    def figures(self) -> dict[str, str]:
        """Extra columns that published tables do not have."""
        mfu = self.window.mfu if self.window else None
        return {
            "MFU": "" if mfu is None else f"{mfu:.1%}",
            "outcome": self.outcome,
            "peak memory": ", ".join(f"{m.allocated_bytes // _MIB}MiB" for m in self.memory),
        }


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with equal columns as a Markdown table."""
    columns = list(rows[0])
    lines = [columns, [":-:"] * len(columns), *([_cell(text) for text in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds; windows under a minute in hundredths of a second."""
    if seconds < 60:
        return f"{seconds:.2f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
