"""Combines the rounds of a point: settings, speed, memory and spread.

The spread is the lowest to the highest median of the rounds. With one round it is the 5th to the 95th
percentile of its units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from calotype.bench.records.store import Stored
from calotype.spec.records.measurement import FILE, VARIANT, Measurement, Setting, identity_of
from calotype.spec.statistics import summarize

GIB = 2**30
_SHAPE = ("count", "width", "height", "steps", "cfg")
_SIZES = ("micro_batch_size", "global_batch_size")


@dataclass(frozen=True)
class Spread:
    """A median with the lowest and the highest value."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class PointView:
    """All rounds of one point in one file."""

    name: str
    """The point's name, unique within a report."""
    rounds: tuple[Stored, ...]

    @property
    def first(self) -> Measurement:
        """The first successful round, or the first round: an early failure records few settings."""
        return self.good[0] if self.good else self.rounds[0].measurement

    @cached_property
    def good(self) -> list[Measurement]:
        return [one.measurement for one in self.rounds if one.measurement.status == "ok"]

    @cached_property
    def failed(self) -> list[Measurement]:
        return [one.measurement for one in self.rounds if one.measurement.status != "ok"]

    @property
    def status(self) -> str:
        if not self.failed:
            return "ok"
        worst = "oom" if any(m.status == "oom" for m in self.failed) else "error"
        return worst if not self.good else f"{worst} in {len(self.failed)} of {len(self.rounds)} rounds"

    @property
    def message(self) -> str:
        return "; ".join(dict.fromkeys(m.message or "no message" for m in self.failed))

    @property
    def batch(self) -> int | None:
        m = self.first
        return m.recipe["model"]["micro_batch_size"] if m.recipe else (m.request or {}).get("count")

    @property
    def size(self) -> tuple[int, int] | None:
        request = self.first.request or {}
        width, height = request.get("width"), request.get("height")
        return (width, height) if width and height else None

    @property
    def steps(self) -> int | None:
        return (self.first.request or {}).get("steps")

    @property
    def cfg(self) -> float | None:
        return (self.first.request or {}).get("cfg")

    @property
    def gpus(self) -> int:
        return self.first.devices * self.first.nodes

    @property
    def on_cpu(self) -> bool:
        return self.first.device.upper().startswith("CPU")

    @property
    def variant(self) -> str | None:
        variant = self.first.settings.get(VARIANT)
        return None if variant is None else str(variant)

    @cached_property
    def seconds(self) -> Spread | None:
        """Time of one unit of work: a batch of images, a training step or a request."""
        walls = [wall for m in self.good if (wall := m.steady)]
        if not walls:
            return None
        medians = [wall.median for wall in walls]
        low, high = (walls[0].p5, walls[0].p95) if len(walls) == 1 else (min(medians), max(medians))
        return Spread(summarize(medians).median, low, high)

    @property
    def repeated(self) -> bool:
        """Whether there are enough measurements for a spread."""
        return sum(m.steady.count for m in self.good if m.steady) > 1

    @cached_property
    def rate(self) -> Spread | None:
        """Images or samples per second over all devices."""
        rates = [m.samples_per_s for m in self.good if m.samples_per_s]
        if not rates or self.seconds is None:
            return None
        middle = summarize(rates).median
        # Requests overlap, so their latency does not determine the throughput.
        if len(rates) > 1 or self.first.kind == "serve":
            return Spread(middle, min(rates), max(rates))
        spread, each = self.seconds, self.first.samples_per_unit or 1
        # The rate of the whole window may lie outside the range of its single steps.
        return Spread(middle, min(middle, each / spread.high), max(middle, each / spread.low))

    @cached_property
    def memory_gib(self) -> float | None:
        """Peak memory that torch reserved on any device."""
        return max((p.reserved_bytes / GIB for m in self.good for p in m.memory), default=None)

    @cached_property
    def tensors_gib(self) -> float | None:
        """Peak memory of tensors on any device, which repeats better than torch's reserved memory."""
        return max((p.allocated_bytes / GIB for m in self.good for p in m.memory), default=None)

    @cached_property
    def tflops(self) -> float | None:
        rates = [m.work.tflops for m in self.good if m.work]
        return summarize(rates).median if rates else None

    @cached_property
    def share_of_ceiling(self) -> float | None:
        shares = [m.work.share_of_ceiling for m in self.good if m.work]
        known = [share for share in shares if share is not None]
        return summarize(known).median if known else None

    @cached_property
    def facets(self) -> dict[str, Any]:
        """Settings that distinguish the point from others of its kind, by readable names."""
        m = self.first
        mapped = {"batch", "size", "steps", "cfg", "preset", "precision", "model", VARIANT}
        others: dict[str, Setting] = {k: v for k, v in m.settings.items() if k not in mapped}
        if m.recipe:
            data = m.recipe.get("data", {}).get("kind")
            others |= {"data": data, "EMA": m.recipe["model"].get("use_ema")}
        return {
            "software": " ".join(filter(None, (m.system, m.preset))),
            "precision": m.precision,
            "size": None if self.size is None else "{}×{}".format(*self.size),
            "batch": self.batch,
            "steps": self.steps,
            "cfg": self.cfg,
            "device": m.device,
            "gpus": None if self.on_cpu else self.gpus,
            VARIANT: self.variant,
            **others,
        }

    @cached_property
    def rest(self) -> str:
        """An identity that is equal for points which differ only in their facets and shapes."""
        m = self.first
        request = {key: value for key, value in (m.request or {}).items() if key not in _SHAPE}
        recipe = {key: value for key, value in (m.recipe or {}).items() if key not in ("trainer", "name")}
        if "model" in recipe:
            recipe["model"] = {k: v for k, v in recipe["model"].items() if k not in _SIZES}
        return identity_of({"file": str(self.rounds[0].file), "asked": request, "recipe": recipe})


def points_of(stored: Sequence[Stored]) -> list[PointView]:
    """Group measurements into points, in order, each with a unique name."""
    groups: dict[tuple[Any, ...], list[Stored]] = {}
    for one in stored:
        m = one.measurement
        if m.kind != "ceiling":
            groups.setdefault((one.file, m.id, m.device, m.point), []).append(one)
    final = [_without_retried(group) for group in groups.values()]
    return [PointView(name, tuple(rounds)) for name, rounds in zip(_names(final), final, strict=True)]


def _without_retried(group: Sequence[Stored]) -> list[Stored]:
    """Drop failures of rounds that succeeded on retry; keep the last failure of each other round."""
    worked = {one.measurement.round for one in group if one.measurement.status == "ok"}
    failed = {one.measurement.round: one for one in group if one.measurement.status != "ok"}
    last = [one for number, one in failed.items() if number not in worked]
    return [one for one in group if one.measurement.status == "ok" or one in last]


def _names(groups: Sequence[Sequence[Stored]]) -> list[str]:
    """Names of the points; with the run, and then the line, added where a name is not unique."""
    plain = [group[0].measurement.point for group in groups]
    with_run = [f"{name} ({run_of(group[0].file)})" for name, group in zip(plain, groups, strict=True)]
    with_line = [f"{name} line {group[0].line}" for name, group in zip(with_run, groups, strict=True)]
    seen, seen_with_run = Counter(plain), Counter(with_run)
    return [
        name if seen[name] == 1 else longer if seen_with_run[longer] == 1 else longest
        for name, longer, longest in zip(plain, with_run, with_line, strict=True)
    ]


def run_of(file: Path) -> str:
    """Name of a run: its folder."""
    return file.parent.name if file.name == FILE and file.parent.name else file.stem


def files_of(points: Iterable[PointView]) -> list[Path]:
    return list(dict.fromkeys(one.file for point in points for one in point.rounds))
