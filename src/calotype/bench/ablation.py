"""Computes what each pass or switch gains in time and memory from the measurements of its variants."""

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
    """The configuration with one pass or switch changed."""

    how: How
    what: str | None
    """The pass or switch; None for all or none of them."""
    settings: Mapping[str, Setting]

    @property
    def label(self) -> str:
        return self.how if self.what is None else f"{self.how} {self.what}"


def variant_points(sweep: Sweep, variants: Sequence[Variant], device: str | None = None) -> dict[str, Point]:
    """Map each variant's label to its point.

    Variants with the same settings share one point, which carries all their labels.
    """
    point_by_label: dict[str, Point] = {}
    for variant in variants:
        varied = sweep.model_copy(update={"settings": {**sweep.settings, **variant.settings}})
        (point_by_label[variant.label],) = points_of(varied, device=device)
    labels: dict[str, list[str]] = {}
    for label, point in point_by_label.items():
        labels.setdefault(point.id, []).append(label)
    return {
        label: _named(point, VARIANT_SEPARATOR.join(labels[point.id]))
        for label, point in point_by_label.items()
    }


def _named(point: Point, name: str) -> Point:
    return point.model_copy(update={"name": name, "settings": {VARIANT: name}})


TOGETHER = "all together"
_MIB = 2**20


@dataclass(frozen=True)
class Gain:
    """The gain of one pass or switch."""

    what: str
    in_company: Ratio | None
    """Speed of all passes over all passes without this one; None if either failed."""
    in_company_bytes: int | None
    """Additional memory among all passes; negative if the pass saves memory."""
    alone: Ratio | None
    """Speed of this pass alone over no pass."""
    alone_bytes: int | None
    failures: tuple[str, ...]

    @property
    def doubtful(self) -> list[str]:
        """Gains that the spread of the measurements does not support."""
        claims = {self.what: self.in_company, f"{self.what} alone": self.alone}
        return [claim for claim, gain in claims.items() if gain and not gain.separated]

    def cells(self) -> dict[str, str]:
        """The gain as a table row."""
        return {
            "what": self.what,
            "gives among all": _format_ratio(self.in_company),
            "memory MiB": _mib(self.in_company_bytes),
            "gives alone": _format_ratio(self.alone),
            "memory alone MiB": _mib(self.alone_bytes),
            "failed": "; ".join(self.failures),
        }


def measure_gains(
    variants: Sequence[Variant], points: Mapping[str, Point], measurements: Sequence[Measurement]
) -> list[Gain]:
    """Return one gain for each pass or switch in order, then the gain of all of them together."""
    measurements_of = by_point(measurements)
    rounds = {label: measurements_of.get(point.id, []) for label, point in points.items()}
    names = dict.fromkeys(variant.what for variant in variants if variant.what is not None)
    every, nothing = rounds["all"], rounds["none"]
    failures = tuple(dict.fromkeys(_failures([*every, *nothing])))
    together = Gain(TOGETHER, None, None, ratio(every, nothing), _more_bytes(every, nothing), failures)
    return [*(_gain(what, variants, rounds) for what in names), together]


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
    first, second = _peak(one), _peak(other)
    return None if first is None or second is None else first - second


def _peak(rounds: Sequence[Measurement]) -> int | None:
    """Peak of allocated tensors, which repeats between runs better than torch's reserved memory."""
    return max((memory.allocated_bytes for m in rounds for memory in m.memory), default=None)


def _format_ratio(value: Ratio | None) -> str:
    return "" if value is None else str(value)


def _mib(count: int | None) -> str:
    return "" if count is None else f"{count / _MIB:+.0f}"


def pass_variants(preset: str, device_type: str) -> list[Variant]:
    """Return variants with all passes, with none, and for each pass of the device: without it and alone."""
    names = pass_names(preset, device_type)
    variants = [Variant("all", None, {"preset": preset}), Variant("none", None, {"preset": CUSTOM_PREFIX})]
    variants += [Variant("without", name, _preset_settings(_without(names, name))) for name in names]
    return variants + [Variant("only", name, _preset_settings(_alone(names, name))) for name in names]


def _preset_settings(names: Sequence[str]) -> dict[str, str]:
    return {"preset": CUSTOM_PREFIX + "+".join(names)}


def _without(names: Sequence[str], removed: str) -> list[str]:
    return [name for name in names if removed not in _dependencies(PASSES[name]) | {name}]


def _alone(names: Sequence[str], selected: str) -> list[str]:
    return [name for name in names if name in _dependencies(PASSES[selected]) | {selected}]


def _dependencies(one: Pass) -> set[str]:
    """Names of all passes that a pass requires, directly or indirectly."""
    return {name for below in one.after for name in (_dependencies(PASSES[below]) | {below})}


@dataclass(frozen=True)
class Switch:
    """A recipe key that changes how steps are computed and hardly affects what the model learns."""

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
    """Return the recipe unchanged, with all switches off, and for each switch: flipped, and on alone."""
    chosen = list(names) or list(SWITCHES)
    unknown = [name for name in chosen if name not in SWITCHES]
    if unknown:
        rules = [f"no switch {name!r}; {did_you_mean(name, SWITCHES)}" for name in unknown]
        raise RequestError([Problem("--switches", rule) for rule in rules])
    nothing = {switch.key: switch.off for switch in SWITCHES.values()}
    variants = [Variant("all", None, {}), Variant("none", None, nothing)]
    for name in chosen:
        switch = SWITCHES[name]
        flipped = switch.off if switch.is_on(recipe) else switch.on
        variants.append(Variant("without" if switch.is_on(recipe) else "with", name, {switch.key: flipped}))
    alone = [(name, SWITCHES[name]) for name in chosen]
    return variants + [Variant("only", name, {**nothing, switch.key: switch.on}) for name, switch in alone]
