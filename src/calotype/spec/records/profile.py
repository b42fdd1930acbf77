"""Profile record: where the time of a job went, with advice."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Group = Literal[
    "matmul", "convolution", "attention", "normalisation", "elementwise", "memory", "other", "launch gaps"
]
GROUPS: tuple[Group, ...] = (
    "matmul",
    "convolution",
    "attention",
    "normalisation",
    "elementwise",
    "memory",
    "other",
    "launch gaps",
)
Verdict = Literal["device-bound", "host-bound", "data-bound", "on the host"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class GroupTime(_Frozen):
    """The share of one group in the window; all groups add up to it."""

    group: Group
    seconds: float
    """A moment that kernels of several streams share is split evenly among them."""
    share: float
    count: int
    """Kernels, or operations on the host; gaps of their own kind."""


class KernelTime(_Frozen):
    """All runs of one kernel, or of one operation on the host."""

    name: str
    short_name: str
    group: Group
    what: str
    """One-sentence description."""
    count: int
    seconds: float
    share: float
    mean_us: float


class StageTime(_Frozen):
    """All runs of a marked stage of the job."""

    name: str
    count: int
    host_s: float
    device_s: float | None
    """From its first kernel to its last; None if the trace does not tell."""


class Waiting(_Frozen):
    """Whether the device waits for the host."""

    verdict: Verdict
    busy_s: float
    """The device had work; on a processor alone, an operation ran."""
    idle_s: float
    waiting_s: float
    """The device was idle because no work was launched yet."""
    waiting_for_data_s: float
    """The part of it during which the host was fetching the next batch."""
    launches: int
    launch_s: float
    """Spent by the host inside the calls that start work."""
    message: str
    advice: list[str]


class NsightCommand(_Frozen):
    """A command for deeper analysis with an NVIDIA profiler."""

    program: Literal["nsys", "ncu"]
    installed: bool
    command: str
    shows: str


class ProfileRecord(_Frozen):
    """One profile."""

    format: Literal["calotype.profile.1"] = "calotype.profile.1"
    command: str
    job: Literal["generate", "train", "trace"]
    asked: dict[str, Any]
    """The whole request with its model and preset, or the recipe."""
    device: str
    clock: Literal["device", "host"]
    """Whose time is split into groups: the device's kernels, or without a GPU the host's operations."""
    window_s: float
    """Duration of the profiled window."""
    unprofiled_s: float | None
    """The same work just before, without a profiler; None for a trace from elsewhere."""
    warmup_s: list[float]
    groups: list[GroupTime]
    kernels: list[KernelTime]
    """The longest first."""
    stages: list[StageTime]
    waiting: Waiting
    nsight: list[NsightCommand]
    trace: str
    """File name."""
    fingerprint: dict[str, Any]
