"""`calotype engine presets`: list the presets, their passes and the effect of each on results."""

from typing import TYPE_CHECKING, Any

from calotype.cli.common_options import AsJson

if TYPE_CHECKING:
    from calotype.engine.passes import Pass

_EFFECTS = ("exact", "rounding", "lossy")


def command(as_json: AsJson = False) -> None:
    """List the presets and the passes of each.

    Results are identical (exact), equal up to rounding, or visibly different (lossy). A preset skips passes
    that need another kind of device; a custom list (`--preset passes:NAME+NAME`) fails instead.
    """
    from calotype.cli.output import console, print_json
    from calotype.engine.presets import PASSES, PRESETS

    if as_json:
        print_json({name: [_facts(one) for one in passes] for name, passes in PRESETS.items()})
        return
    from rich.table import Table

    presets = Table("preset", "numbers", "passes", box=None, pad_edge=False)
    for name, passes in PRESETS.items():
        effect = max((one.effect for one in passes), key=_EFFECTS.index, default="exact")
        names = ", ".join(one.name for one in passes) or "none: the forward pass of diffusers"
        presets.add_row(name, effect, names)
    every = Table("pass", "numbers", "only on", "what it is", box=None, pad_edge=False)
    for one in PASSES.values():
        every.add_row(one.name, one.effect, {None: "", "cuda": "GPUs", "cpu": "CPUs"}[_where(one)], one.about)
    out = console()
    out.print(presets)
    out.print()
    out.print(every)


def _facts(one: "Pass") -> dict[str, Any]:
    return {"pass": one.name, "effect": one.effect, "about": one.about, "only_on": _where(one)}


def _where(one: "Pass") -> str | None:
    from calotype.engine.presets import CPU_ONLY, GPU_ONLY

    return "cuda" if one.name in GPU_ONLY else "cpu" if one.name in CPU_ONLY else None
