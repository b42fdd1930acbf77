"""A recipe's switches, each turned the other way and each on alone. Trains nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calotype.bench.ablation.variants import Variant
from calotype.core.errors import Problem, RequestError, near_matches
from calotype.spec.measurement import Setting
from calotype.spec.recipe import Recipe


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
        rules = [f"no switch {name!r}; {near_matches(name, SWITCHES)}" for name in unknown]
        raise RequestError([Problem("--switches", rule) for rule in rules])
    nothing = {switch.key: switch.off for switch in SWITCHES.values()}
    variants = [Variant("all", None, {}), Variant("none", None, nothing)]
    for name in chosen:
        switch = SWITCHES[name]
        turned = switch.off if switch.is_on(recipe) else switch.on
        variants.append(Variant("without" if switch.is_on(recipe) else "with", name, {switch.key: turned}))
    alone = [(name, SWITCHES[name]) for name in chosen]
    return variants + [Variant("only", name, {**nothing, switch.key: switch.on}) for name, switch in alone]
