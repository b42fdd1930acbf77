"""What each pass or switch gives, in time and memory, from the measurements of its variants. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calotype.bench.ablation.variants import Variant
from calotype.bench.sweep.ratios import Ratio, by_point, ratio
from calotype.spec.measurement import Measurement
from calotype.spec.measurement_job import Point

TOGETHER = "all together"
_MIB = 2**20


@dataclass(frozen=True)
class Gain:
    """Of one pass or switch."""

    what: str
    in_company: Ratio | None
    """How many times faster everything is with it than without; None if either failed."""
    in_company_bytes: int | None
    """How much more memory it takes there; negative if it saves some."""
    alone: Ratio | None
    """How many times faster nothing but it is than nothing."""
    alone_bytes: int | None
    failures: tuple[str, ...]

    @property
    def doubtful(self) -> list[str]:
        """What is claimed here that the spread does not bear out."""
        claims = {self.what: self.in_company, f"{self.what} alone": self.alone}
        return [claim for claim, found in claims.items() if found and not found.separated]

    def cells(self) -> dict[str, str]:
        """As a line of a table."""
        return {
            "what": self.what,
            "gives among all": _told(self.in_company),
            "memory MiB": _mib(self.in_company_bytes),
            "gives alone": _told(self.alone),
            "memory alone MiB": _mib(self.alone_bytes),
            "failed": "; ".join(self.failures),
        }


def gains(
    variants: Sequence[Variant], points: Mapping[str, Point], measurements: Sequence[Measurement]
) -> list[Gain]:
    """One gain for each thing that was varied, in order, and at last that of all of them together."""
    found = by_point(measurements)
    rounds = {label: found.get(point.id, []) for label, point in points.items()}
    things = dict.fromkeys(variant.what for variant in variants if variant.what is not None)
    every, nothing = rounds["all"], rounds["none"]
    failures = tuple(dict.fromkeys(_failures([*every, *nothing])))
    together = Gain(TOGETHER, None, None, ratio(every, nothing), _more_bytes(every, nothing), failures)
    return [*(_gain(what, variants, rounds) for what in things), together]


def _gain(what: str, variants: Sequence[Variant], rounds: Mapping[str, list[Measurement]]) -> Gain:
    own = {variant.how: rounds[variant.label] for variant in variants if variant.what == what}
    on, off = (own["with"], rounds["all"]) if "with" in own else (rounds["all"], own["without"])
    alone, nothing = own["only"], rounds["none"]
    return Gain(
        what,
        ratio(on, off),
        _more_bytes(on, off),
        ratio(alone, nothing),
        _more_bytes(alone, nothing),
        tuple(dict.fromkeys(_failures([*on, *off, *alone, *nothing]))),
    )


def _failures(rounds: Sequence[Measurement]) -> list[str]:
    return [f"{m.point}: {m.status}" for m in rounds if m.status != "ok"]


def _more_bytes(one: Sequence[Measurement], other: Sequence[Measurement]) -> int | None:
    mine, yours = _peak(one), _peak(other)
    return None if mine is None or yours is None else mine - yours


def _peak(rounds: Sequence[Measurement]) -> int | None:
    """By tensors, which repeats from run to run better than what torch reserves."""
    return max((memory.allocated_bytes for m in rounds for memory in m.memory), default=None)


def _told(found: Ratio | None) -> str:
    return "" if found is None else str(found)


def _mib(count: int | None) -> str:
    return "" if count is None else f"{count / _MIB:+.0f}"
