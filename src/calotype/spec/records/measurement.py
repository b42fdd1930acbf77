"""The measurement record, the only type that reports and queries use.

A record is one point of a sweep in one round, measured in its own process. Failures are records too.
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
"""File of measurements in the folder of a run."""
WALL = "wall"
"""The series that every kind but `ceiling` has: seconds of one unit of work as the host's clock sees it."""
VARIANT_SEPARATOR = ", "
"""Separator in the setting `variant` between labels of identical variants of an ablation."""
VARIANT = "variant"
"""The setting that names a variant: all, none, `without X`, `with X` or `only X`."""

Kind = Literal["inference", "train", "serve", "ceiling", "data"]
"""`data`: batches of a recipe's data, read and prepared on the CPU, without training."""
Status = Literal["ok", "oom", "error"]
Unit = Literal["s", "J", "W", "byte", "TFLOP/s", "GB/s", "samples/s", "requests/s", "dB", "1"]
Setting = str | int | float | bool | None


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Series(_Frozen):
    """Raw values of a repeated measurement, in order."""

    unit: Unit
    values: list[float]
    summary: Summary
    """Derived from the values; stored so that other programs need not compute it."""

    @classmethod
    def of(cls, unit: Unit, values: Sequence[float]) -> Self:
        return cls(unit=unit, values=list(values), summary=summarize(values))


class Preparation(_Frozen):
    """Time before the measured window; not part of the series."""

    load_s: float | None = None
    """Loading weights and applying passes."""
    warmup_s: list[float] = []
    """Each warm-up unit; the first includes compilation."""
    compile_s: float | None = None
    """Excess of the first warm-up unit over a measured one: compilation, graph capture, autotuning."""


class PeakMemory(_Frozen):
    """Peak memory of one device, including warm-up."""

    allocated_bytes: int
    """By tensors."""
    reserved_bytes: int
    """By torch for its tensors."""
    device_bytes: int | None
    """In use on the whole device as its driver says, other programs included; None if not queried."""
    total_bytes: int


class Work(_Frozen):
    """Arithmetic work and its rate, relative to the peak of the device."""

    tflop_per_sample: float
    """Counted, not measured; work that a pass skips still counts."""
    tflops: float
    """Reached on each device."""
    ceiling_tflops: float | None = None
    """Measured peak of this device in this precision."""
    ceiling_source: Literal["given", "measured"] | None = None
    share_of_ceiling: float | None = None

    def under(self, ceiling_tflops: float, source: Literal["given", "measured"] = "measured") -> Work:
        """The same work with its share of a ceiling."""
        known = {"ceiling_tflops": ceiling_tflops, "ceiling_source": source}
        return self.model_copy(update={**known, "share_of_ceiling": self.tflops / ceiling_tflops})


class Likeness(_Frozen):
    """Similarity of the images to those of the same request with the baseline preset."""

    reference: str
    """System or preset of the reference images."""
    psnr_db: float | None
    """None for bit-identical images."""
    ssim: float


class Measurement(_Frozen):
    """One measurement: what was run, where, and the results."""

    format: Literal["calotype.measurement.1"] = FORMAT
    id: str
    """Derived from all settings of the point; equal in every round and run."""
    point: str
    """Display name; one per id in a run."""
    round: Annotated[int, Field(ge=1)] = 1
    """Sweeps measure all points once per round, so that drift affects all of them alike."""

    kind: Kind
    system: str = "calotype"
    """`calotype`, `diffusers-eager` or `diffusers-compile`."""
    model: str
    """As requested."""
    weights_sha256: str | None = None
    preset: str | None = None
    passes: list[str] | None = None
    """Passes of the engine, in order; None for baselines and training."""
    precision: str | None = None
    request: dict[str, Any] | None = None
    """The whole request, of inference and serving."""
    recipe: dict[str, Any] | None = None
    """The whole recipe, of training."""
    settings: dict[str, Setting] = {}
    """Settings that the sweep varies, by axis: batch, size, steps, cfg, preset, without, …"""

    device: str
    """The GPU's name, or `CPU` and its model."""
    devices: int = 1
    nodes: int = 1
    fingerprint: dict[str, Any]
    commit: str | None = None
    modified: bool | None = None
    """Whether tracked files differed from the commit."""
    command: str
    """Command line that repeats the measurement."""
    started_at: AwareDatetime | None = None
    """None in records of training from before measurements had it."""
    seconds_in_all: float | None = None
    """Duration of the process, including imports and loading."""

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
    """Peak main memory of the process."""
    work: Work | None = None
    """None if the arithmetic was not counted."""
    quality: Likeness | None = None
    """None if no pass can change images, or if it was not measured."""
    energy_j: float | None = None
    """Energy of the device over the measured units; None if the driver does not report it."""
    notes: list[str] = []
    """Further remarks for readers."""

    @property
    def wall(self) -> Summary | None:
        """Seconds of one unit of work."""
        found = self.series.get(WALL)
        return found.summary if found else None

    @property
    def steady(self) -> Summary | None:
        """The same; of training by CUDA events if possible, as the host runs ahead of the device."""
        device = self.series.get("device") if self.kind == "train" else None
        return device.summary if device else self.wall

    @property
    def energy_per_sample_j(self) -> float | None:
        measured = self.series.get(WALL)
        if self.energy_j is None or measured is None or not self.samples_per_unit:
            return None
        return self.energy_j / (len(measured.values) * self.samples_per_unit)


def identity_of(settings: Mapping[str, Any]) -> str:
    """A short hash of plain values, independent of their order."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
