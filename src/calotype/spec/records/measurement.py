"""What is remembered of one measurement, whatever was measured: the one type that reports and queries see.

A record is a point of a sweep in one of its rounds, in a process of its own. What failed is a record too.
Knows nothing of torch, nor of where records are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from calotype.spec.statistics import Summary, summarize

FORMAT: Literal["calotype.measurement.1"] = "calotype.measurement.1"
FILE = "records.jsonl"
"""What a run's folder calls its measurements."""
WALL = "wall"
"""The series that every kind but `ceiling` has: seconds of one unit of work as the host's clock sees it."""
VARIANT_SEPARATOR = ", "
"""Between the labels of an ablation's variants that come to the same, in the setting `variant`."""
VARIANT = "variant"
"""The setting that names a variant: all, none, `without X`, `with X` or `only X`."""

Kind = Literal["inference", "train", "serve", "ceiling", "data"]
"""`data`: batches of a recipe's data, read and prepared on the CPU and trained on by nobody."""
Status = Literal["ok", "oom", "error"]
Unit = Literal["s", "J", "W", "byte", "TFLOP/s", "GB/s", "samples/s", "requests/s", "dB", "1"]
Setting = str | int | float | bool | None


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Series(_Frozen):
    """Raw numbers of one thing that was measured again and again, in the order they came."""

    unit: Unit
    values: list[float]
    summary: Summary
    """Follows from the values; kept so that other programs need not work it out."""

    @classmethod
    def of(cls, unit: Unit, values: Sequence[float]) -> Self:
        return cls(unit=unit, values=list(values), summary=summarize(values))


class Preparation(_Frozen):
    """What passed before the clock started; none of it is in the series."""

    load_s: float | None = None
    """Weights read and in place, passes applied."""
    warmup_s: list[float] = []
    """Each unit of work before the measured ones; the first holds compiling."""
    compile_s: float | None = None
    """How much longer the first of them took than a measured one: compiling, recording, choosing kernels."""


class PeakMemory(_Frozen):
    """The most one device held while the work ran, warm-up included."""

    allocated_bytes: int
    """By tensors."""
    reserved_bytes: int
    """By torch for its tensors."""
    device_bytes: int | None
    """In use on the whole device as its driver says, other programs included; None where it was not asked."""
    total_bytes: int


class Work(_Frozen):
    """How much arithmetic was done, and how fast, beside what the device can do."""

    tflop_per_sample: float
    """Counted, not measured; what a pass leaves out still counts."""
    tflops: float
    """Reached on each device."""
    ceiling_tflops: float | None = None
    """The most this device was measured to reach in this precision."""
    ceiling_source: Literal["given", "measured"] | None = None
    share_of_ceiling: float | None = None

    def under(self, ceiling_tflops: float, source: Literal["given", "measured"] = "measured") -> Work:
        """The same work beside a ceiling."""
        known = {"ceiling_tflops": ceiling_tflops, "ceiling_source": source}
        return self.model_copy(update={**known, "share_of_ceiling": self.tflops / ceiling_tflops})


class Likeness(_Frozen):
    """How near the pictures are to those of the same request done plainly."""

    reference: str
    """Whose pictures they are held against."""
    psnr_db: float | None
    """None where they are the same to the bit."""
    ssim: float


class Measurement(_Frozen):
    """One measurement: what was run, where, and what came of it."""

    format: Literal["calotype.measurement.1"] = FORMAT
    id: str
    """Follows from everything that is asked of the point; the same in every round and every run."""
    point: str
    """What people call it; one name for one id in a run."""
    round: Annotated[int, Field(ge=1)] = 1
    """Sweeps go over all points once a round, so that drift hits all of them alike."""

    kind: Kind
    system: str = "calotype"
    """`calotype`, `diffusers-eager` or `diffusers-compile`."""
    model: str
    """As it was asked for."""
    weights_sha256: str | None = None
    preset: str | None = None
    passes: list[str] | None = None
    """Of the engine that ran, in order; None for peers and training."""
    precision: str | None = None
    request: dict[str, Any] | None = None
    """The whole request, of inference and serving."""
    recipe: dict[str, Any] | None = None
    """The whole recipe, of training."""
    settings: dict[str, Setting] = {}
    """What the sweep varies, by axis: batch, size, steps, cfg, preset, without, …"""

    device: str
    """The GPU's name, or `CPU` and its model."""
    devices: int = 1
    nodes: int = 1
    fingerprint: dict[str, Any]
    commit: str | None = None
    modified: bool | None = None
    """Whether tracked files differed from the commit."""
    command: str
    """What a person types to measure it again."""
    started_at: AwareDatetime | None = None
    """None in records of training from before measurements had it."""
    seconds_in_all: float | None = None
    """Of the process, imports and loading included."""

    status: Status
    message: str | None = None
    """Why there are no samples."""
    series: dict[str, Series] = {}
    """By name. `wall`: one batch of pictures, or one training step. Others: `device`, `step`, `loss`, …"""
    samples_per_unit: int | None = None
    """Pictures or training samples in one unit of `wall`."""
    samples_per_s: float | None = None
    preparation: Preparation = Preparation()
    memory: list[PeakMemory] = []
    """One for each device; empty on the CPU."""
    host_peak_bytes: int | None = None
    """The most main memory the process had."""
    work: Work | None = None
    """None where nobody counted the arithmetic."""
    quality: Likeness | None = None
    """None where nothing could change it, or nobody looked."""
    energy_j: float | None = None
    """Of the device over the measured units; None where the driver does not say."""
    notes: list[str] = []
    """What else a reader should know."""

    @property
    def wall(self) -> Summary | None:
        """Seconds of one unit of work."""
        found = self.series.get(WALL)
        return found.summary if found else None

    @property
    def steady(self) -> Summary | None:
        """The same; of training on the device's own clock if it has one, since the host runs ahead of it."""
        device = self.series.get("device") if self.kind == "train" else None
        return device.summary if device else self.wall

    @property
    def energy_per_sample_j(self) -> float | None:
        measured = self.series.get(WALL)
        if self.energy_j is None or measured is None or not self.samples_per_unit:
            return None
        return self.energy_j / (len(measured.values) * self.samples_per_unit)


def identity_of(asked: Mapping[str, Any]) -> str:
    """A short name that follows from plain values, whatever their order."""
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
