"""What each pass or switch gives, in time and memory, from the measurements of its variants. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from calotype.bench.sweep.points import points_of
from calotype.bench.sweep.ratios import Ratio, by_point, ratio
from calotype.core.errors import Problem, RequestError, did_you_mean
from calotype.engine.passes import Pass
from calotype.engine.presets import CUSTOM_PREFIX, PASSES, pass_names
from calotype.spec.bench_job import Point
from calotype.spec.recipe import Recipe
from calotype.spec.records.measurement import VARIANT, VARIANT_SEPARATOR, Measurement, Setting
from calotype.spec.sweep import Sweep

How = Literal["all", "none", "without", "with", "only"]


@dataclass(frozen=True)
class Variant:
    """The configuration with one thing changed."""

    how: How
    what: str | None
    """The pass or switch; None for all or none of them."""
    settings: Mapping[str, Setting]

    @property
    def label(self) -> str:
        return self.how if self.what is None else f"{self.how} {self.what}"


def variant_points(sweep: Sweep, variants: Sequence[Variant], device: str | None = None) -> dict[str, Point]:
    """Each variant's point by its label; variants that come to the same share one, under all their labels."""
    made: dict[str, Point] = {}
    for variant in variants:
        varied = sweep.model_copy(update={"settings": {**sweep.settings, **variant.settings}})
        (made[variant.label],) = points_of(varied, device=device)
    labels: dict[str, list[str]] = {}
    for label, point in made.items():
        labels.setdefault(point.id, []).append(label)
    return {label: _named(point, VARIANT_SEPARATOR.join(labels[point.id])) for label, point in made.items()}


def _named(point: Point, name: str) -> Point:
    return point.model_copy(update={"name": name, "settings": {VARIANT: name}})


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


def measure_gains(
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


def pass_variants(preset: str, device_type: str) -> list[Variant]:
    """Everything, nothing, and of each pass that concerns the device: without it, and it alone."""
    names = pass_names(preset, device_type)
    variants = [Variant("all", None, {"preset": preset}), Variant("none", None, {"preset": CUSTOM_PREFIX})]
    variants += [Variant("without", name, _asked(_without(names, name))) for name in names]
    return variants + [Variant("only", name, _asked(_alone(names, name))) for name in names]


def _asked(names: Sequence[str]) -> dict[str, str]:
    return {"preset": CUSTOM_PREFIX + "+".join(names)}


def _without(names: Sequence[str], gone: str) -> list[str]:
    return [name for name in names if gone not in _foundations(PASSES[name]) | {name}]


def _alone(names: Sequence[str], kept: str) -> list[str]:
    return [name for name in names if name in _foundations(PASSES[kept]) | {kept}]


def _foundations(one: Pass) -> set[str]:
    """All that a pass builds on, however far down."""
    return {name for below in one.after for name in (_foundations(PASSES[below]) | {below})}


@dataclass(frozen=True)
class Switch:
    """A key of a recipe that changes how steps are computed, and hardly what they learn."""

    key: str
    on: Setting = True
    off: Setting = False

    def is_on(self, recipe: Recipe) -> bool:
        part, name = self.key.split(".")
        return bool(getattr(getattr(recipe, part), name) != self.off)


SWITCHES = {
    "compile": Switch("model.compile"),
    "channels_last": Switch("model.channels_last"),
    "cuda_graphs": Switch("model.cuda_graphs"),
    "fused": Switch("optimizer.fused"),
    "one_pass": Switch("optimizer.one_pass"),
    "ema": Switch("model.use_ema"),
    "low_precision_weights": Switch("model.low_precision_weights"),
    "tune_convolutions": Switch("model.tune_convolutions"),
    "encode_aside": Switch("model.encode_aside"),
    "gradient_checkpointing": Switch("model.gradient_checkpointing"),
    "attention": Switch("model.attention", on="auto", off="math"),
    "adamw8bit": Switch("optimizer.name", on="adamw8bit", off="adamw"),
}


def switch_variants(recipe: Recipe, names: Iterable[str] = ()) -> list[Variant]:
    """The recipe as it is, all switches off, and of each: the other way, and on alone."""
    chosen = list(names) or list(SWITCHES)
    unknown = [name for name in chosen if name not in SWITCHES]
    if unknown:
        rules = [f"no switch {name!r}; {did_you_mean(name, SWITCHES)}" for name in unknown]
        raise RequestError([Problem("--switches", rule) for rule in rules])
    nothing = {switch.key: switch.off for switch in SWITCHES.values()}
    variants = [Variant("all", None, {}), Variant("none", None, nothing)]
    for name in chosen:
        switch = SWITCHES[name]
        turned = switch.off if switch.is_on(recipe) else switch.on
        variants.append(Variant("without" if switch.is_on(recipe) else "with", name, {switch.key: turned}))
    alone = [(name, SWITCHES[name]) for name in chosen]
    return variants + [Variant("only", name, {**nothing, switch.key: switch.on}) for name, switch in alone]
