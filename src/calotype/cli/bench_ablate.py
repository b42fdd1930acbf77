"""`calotype bench ablate`: measure the gain of each pass of a preset, or of each switch of a recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.bench_sweep import (
    CeilingTflops,
    Device,
    KeepLoaded,
    Limit,
    Out,
    Pictures,
    Retry,
    Units,
    Warmup,
)
from calotype.cli.common_options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from calotype.bench.ablation import Gain, Variant
    from calotype.spec.records.measurement import Measurement
    from calotype.spec.sweep import Sweep

FILE, PLOTS = "ablation.md", "report"


def ablate(
    out: Out,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Settings: batch, size, steps, …; or dotted keys of the recipe."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Preset whose passes to ablate; alternative to --recipe.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Recipe whose switches to ablate; alternative to --preset.")
    ] = None,
    switches: Annotated[
        str | None, typer.Option(help="With --recipe: the switches to ablate, comma-separated. Default: all.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all variants.")] = 3,
    units: Units = None,
    warmup: Warmup = None,
    limit_s: Limit = None,
    retry_failed: Retry = False,
    ceiling_tflops: CeilingTflops = None,
    device: Device = None,
    models: ModelsFolder = None,
    keep_loaded: KeepLoaded = False,
    pictures: Pictures = True,
    as_json: AsJson = False,
) -> None:
    """Measure the gain of each pass of a preset, or each switch of a recipe: without it, and with it alone.

    Run the same command again to resume a stopped ablation.
    """
    from calotype.bench.ablation import measure_gains, variant_points
    from calotype.bench.sweep.runner import SweepPlan
    from calotype.cli.bench_sweep import how_to, measured

    sweep, variants = _parse_ablation(preset, recipe, switches, settings or [], device)
    counts = {"rounds": rounds, "units": units, "warmup": warmup}
    sweep = sweep.model_copy(update={name: count for name, count in counts.items() if count is not None})
    points = variant_points(sweep, variants, device)
    distinct = list({point.id: point for point in points.values()}.values())
    options = how_to(limit_s, retry_failed, ceiling_tflops, models)
    options |= {"keep_loaded": keep_loaded, "pictures": pictures}
    done = measured(SweepPlan(distinct, out, rounds=rounds, **options))
    _show(measure_gains(variants, points, done.measurements), out, as_json)
    if done.measurements:
        _plot(preset or str(recipe), out, as_json)
    for reason, names in _failures(done.measurements).items():
        typer.echo(f"{', '.join(names)}: {reason}", err=True)
    if not done.finished:
        typer.echo("stopped; run the same command to resume", err=True)


def _parse_ablation(
    preset: str | None, recipe: str | None, switches: str | None, words: list[str], device: str | None
) -> "tuple[Sweep, list[Variant]]":
    from calotype.bench.ablation import pass_variants, switch_variants
    from calotype.bench.inference.points import TEXTS
    from calotype.bench.sweep.axes import parse_axes
    from calotype.bench.sweep.points import parse_sweep
    from calotype.bench.training.points import job_of
    from calotype.core.errors import Problem, RequestError
    from calotype.engine.device import choose_device

    if (preset is None) == (recipe is None):
        raise RequestError([Problem("--preset", "or --recipe is required; give exactly one of the two")])
    given = parse_axes(words, TEXTS if recipe is None else ())
    several = [name for name, values in given.items() if len(values) > 1]
    if several:
        rule = f"{several[0]!r} has several values; an ablation takes one configuration"
        raise RequestError([Problem("ablate", rule)])
    settings: dict[str, Any] = {name: values[0] for name, values in given.items()}
    if preset is not None:
        kind = choose_device(device).type
        return parse_sweep({"kind": "inference", "settings": settings}), pass_variants(preset, kind)
    chosen = [name.strip() for name in (switches or "").split(",") if name.strip()]
    settings["recipe"] = recipe
    whole = job_of(settings, "calotype").recipe
    return parse_sweep({"kind": "train", "settings": settings}), switch_variants(whole, chosen)


def _failures(measurements: "list[Measurement]") -> dict[str, list[str]]:
    """Names of the failed points by reason, each once."""
    found: dict[str, dict[str, None]] = {}
    for one in measurements:
        if one.status != "ok":
            found.setdefault(f"{one.status}: {one.message}", {})[one.point] = None
    return {reason: list(names) for reason, names in found.items()}


def _show(found: "list[Gain]", out: Path, as_json: bool) -> None:
    from calotype.cli.bench_sweep import print_lines
    from calotype.cli.output import print_json
    from calotype.core.paths import atomic_write
    from calotype.spec.records.train_benchmark import markdown

    lines = [gain.cells() for gain in found]
    with atomic_write(out / FILE, "w") as file:
        file.write(markdown(lines) + "\n")
    if as_json:
        print_json(found)
        return
    print_lines(lines)
    if doubtful := [name for gain in found for name in gain.doubtful]:
        warning = f"{', '.join(doubtful)}: the spread is larger than the difference"
        typer.echo(f"warning: {warning}; repeat with more --rounds", err=True)
    typer.echo(f"the table is in {out / FILE}")


def _plot(of: str, out: Path, as_json: bool) -> None:
    """Write the report of this run; bars of time and memory come first."""
    from calotype.bench.report.build import compose
    from calotype.bench.report.load import gather
    from calotype.bench.report.write import PAGE, write

    write(compose(gather([out]), f"Ablation of {of}"), out / PLOTS)
    if not as_json:
        typer.echo(f"plots are in {out / PLOTS / PAGE}")
