"""`calotype bench inference` and `calotype bench train`: sweeps with one process per point."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from calotype.cli.common_options import AsJson, ModelsFolderThere, check_models_folder
from calotype.cli.launch_options import File, GpusPerNode, LaunchOptions, Sets, Where, submit_launch, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calotype.bench.sweep.runner import SweepOutcome, SweepPlan
    from calotype.spec.bench_job import Point
    from calotype.spec.records.measurement import Measurement
    from calotype.spec.sweep import Sweep

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME] [KEY=A,B,C]...", help="Built-in sweeps or YAML files, and axes to vary."),
]
Axes = Annotated[
    list[str] | None,
    typer.Option("--sweep", metavar="KEY=A,B,C...", help="Axis to vary; more axes may follow as arguments."),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Output folder for the records; an existing one is resumed.")
]
Against = Annotated[
    str | None,
    typer.Option(help="Baselines to measure too, comma-separated: diffusers-eager, diffusers-compile."),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Rounds over all points. Default: as the sweep says, otherwise 1.")
]
Units = Annotated[
    int | None, typer.Option(min=1, help="Measured batches or training steps. Default: 5 or 30.")
]
Warmup = Annotated[
    int | None, typer.Option(min=0, help="Warm-up batches or training steps. Default: 2 or 10.")
]
Limit = Annotated[
    float | None, typer.Option("--limit-s", min=0, help="Abort a point after this many seconds.")
]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Run failed points again.")]
CeilingTflops = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        help="Peak TFLOP/s of the device, to report shares of it. Default: as stored by `bench ceiling`.",
    ),
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
]
KeepLoaded = Annotated[
    bool,
    typer.Option(
        "--keep-loaded", help="Run all points of a model in one process; a failure ends the process."
    ),
]
Pictures = Annotated[bool, typer.Option(help="Keep the first image of each point, for contact sheets.")]
Part = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Run only every Nth point, starting at I (from 0), in a subfolder of OUT."
    ),
]

_LONGEST_WORD, _MOST_LINES = 40, 4
"""Limits of a table cell: longer words, such as paths, are cut; longer cells turn rows into paragraphs."""


def inference(
    context: typer.Context,
    out: Out,
    words: Words = None,
    axes: Axes = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model: catalogue name or random:NAME.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="Text prompt of all images.")] = None,
    against: Against = None,
    rounds: Rounds = None,
    units: Units = None,
    warmup: Warmup = None,
    limit_s: Limit = None,
    retry_failed: Retry = False,
    ceiling_tflops: CeilingTflops = None,
    device: Device = None,
    models: ModelsFolderThere = None,
    keep_loaded: KeepLoaded = False,
    pictures: Pictures = True,
    as_json: AsJson = False,
    part: Part = None,
    launch: Where = None,
    launch_file: File = None,
    launch_set: Sets = None,
    gpus_per_node: GpusPerNode = None,
) -> None:
    """Benchmark inference over a sweep of settings.

    Axes: model, batch, size, steps, cfg, preset, precision, sampler, schedule, seed. Built-in sweeps:
    sdxl-batch, sdxl-resolution, sdxl-steps, sdxl-cfg. A point that runs out of memory, crashes or hangs
    becomes a row. Run the same command again to resume. With --launch every point is a task of a job array.
    """
    settings = {"model": model, "prompt": prompt}
    sweep = _sweeps("inference", words, axes, settings, _counts(rounds, units, warmup))
    points = _points(sweep, against, device)
    target = LaunchOptions(launch, launch_file, launch_set or (), gpus_per_node=gpus_per_node)
    if target.elsewhere():
        submit_sweep(target, context, points, out, as_json)
        return
    how = how_to(limit_s, retry_failed, ceiling_tflops, check_models_folder(models))
    how |= {"keep_loaded": keep_loaded, "pictures": pictures}
    _run(points, _rounds(sweep), out, part, how, as_json)


def train(
    context: typer.Context,
    out: Out,
    words: Words = None,
    axes: Axes = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe name or YAML file.")] = None,
    against: Against = None,
    rounds: Rounds = None,
    units: Units = None,
    warmup: Warmup = None,
    limit_s: Limit = None,
    retry_failed: Retry = False,
    ceiling_tflops: CeilingTflops = None,
    device: Device = None,
    models: ModelsFolderThere = None,
    as_json: AsJson = False,
    part: Part = None,
    launch: Where = None,
    launch_file: File = None,
    launch_set: Sets = None,
    gpus_per_node: GpusPerNode = None,
) -> None:
    """Benchmark training over a sweep of settings.

    Axes are dotted keys of a recipe, and `batch` for micro and global batch together. Built-in sweeps:
    sd1-train-batch. A point that fails becomes a row. Run the same command again to resume. With --launch
    every point is a task of a job array.
    """
    sweep = _sweeps("train", words, axes, {"recipe": recipe}, _counts(rounds, units, warmup))
    points = _points(sweep, against, device)
    target = LaunchOptions(launch, launch_file, launch_set or (), gpus_per_node=gpus_per_node)
    if target.elsewhere():
        submit_sweep(target, context, points, out, as_json)
        return
    how = how_to(limit_s, retry_failed, ceiling_tflops, check_models_folder(models))
    _run(points, _rounds(sweep), out, part, how, as_json)


def _counts(rounds: int | None, units: int | None, warmup: int | None) -> dict[str, Any]:
    given = {"rounds": rounds, "units": units, "warmup": warmup}
    return {name: value for name, value in given.items() if value is not None}


def how_to(
    limit_s: float | None, retry_failed: bool, ceiling_tflops: float | None, models: Path | None
) -> dict[str, Any]:
    """Options of a SweepPlan, with the source of device ceilings."""
    from calotype.engine.device_peaks import known_peak

    options: dict[str, Any] = {"limit_s": limit_s, "retry_failed": retry_failed, "models": models}
    if ceiling_tflops is None:
        return {**options, "ceiling": known_peak}
    return {**options, "ceiling": lambda *_: ceiling_tflops, "ceiling_source": "given"}


def _sweeps(
    kind: Literal["inference", "train"],
    words: list[str] | None,
    axes: list[str] | None,
    settings: dict[str, str | None],
    counts: dict[str, Any],
) -> "list[Sweep]":
    """The named sweeps with the given axes added, or one sweep of the axes alone."""
    from calotype.bench.inference.points import TEXTS
    from calotype.bench.sweep.axes import parse_axes
    from calotype.bench.sweep.points import load_sweep, parse_sweep
    from calotype.core.errors import Problem, RequestError

    named = [word for word in words or [] if "=" not in word]
    typed = [*(axes or []), *(word for word in words or [] if "=" in word)]
    given = {name: value for name, value in settings.items() if value is not None}
    varied = parse_axes(typed, TEXTS if kind == "inference" else ())
    sweeps = [load_sweep(name) for name in named] or [parse_sweep({"kind": kind})]
    wrong = [name for name, sweep in zip(named, sweeps, strict=False) if sweep.kind != kind]
    if wrong:
        rule = f"{wrong[0]!r} is for `calotype bench {'train' if kind == 'inference' else 'inference'}`"
        raise RequestError([Problem("sweep", rule, wrong[0])])
    return [
        sweep.model_copy(
            update={**counts, "settings": {**sweep.settings, **given}, "axes": {**sweep.axes, **varied}}
        )
        for sweep in sweeps
    ]


def _points(sweeps: "list[Sweep]", against: str | None, device: str | None) -> "list[Point]":
    """All points without duplicates; a point of two sweeps gets the names of both."""
    from calotype.bench.sweep.points import points_of, with_systems

    baselines = parse_baselines(against)
    found: dict[str, Point] = {}
    for sweep in sweeps:
        for point in points_of(with_systems(sweep, baselines), device=device):
            other = found.get(point.id, point)
            names = dict.fromkeys([other.name, point.name])
            both = {"name": ", ".join(names), "settings": {**other.settings, **point.settings}}
            found[point.id] = point.model_copy(update=both)
    return list(found.values())


def _devices(point: "Point") -> int:
    return point.job.recipe.trainer.devices if point.job.kind == "train" else 1


def submit_sweep(
    target: LaunchOptions, context: typer.Context, points: "list[Point]", out: Path, as_json: bool
) -> None:
    """Submit the same command as a job array with one task per point."""
    from calotype.spec.launch import TASK, TASKS

    arguments, options = typed(context, leave_out=("out", "part"))
    kind = str(context.info_name)
    words = ["bench", kind, *arguments, *options, f"--out={out.absolute()}", f"--part={TASK}/{TASKS}"]
    # Each point starts its own processes.
    spec = target.spec(f"bench-{kind}", words, launcher="plain", array=len(points))
    if context.params["device"] != "cpu":
        spec = target.with_gpus(spec, most=max(_devices(point) for point in points))
    assert target.where is not None
    submit_launch(target.where, spec, as_json)


def _rounds(sweeps: "list[Sweep]") -> int:
    return max(sweep.rounds for sweep in sweeps)


def _run(
    points: "list[Point]", rounds: int, out: Path, part: str | None, how: dict[str, Any], as_json: bool
) -> None:
    from calotype.bench.sweep.partition import folder_of, parse_part
    from calotype.bench.sweep.runner import SweepPlan

    if part is not None:
        first, step = parse_part(part)
        points, out = points[first::step], folder_of(out, first)
    done = measured(SweepPlan(points, out, rounds=rounds, **how))
    show(done, out, as_json)


def parse_baselines(text: str | None) -> "Sequence[Any]":
    """Parse the comma-separated names of baselines."""
    from calotype.core.errors import Problem, RequestError, did_you_mean
    from calotype.spec.bench_job import BASELINES

    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    problems = [
        Problem("--against", f"no baseline {name!r}; {did_you_mean(name, BASELINES)}", name)
        for name in names
        if name not in BASELINES
    ]
    if problems:
        raise RequestError(problems)
    return names


def measured(plan: "SweepPlan") -> "SweepOutcome":
    """Run a plan with a progress bar."""
    from calotype.bench.sweep.runner import run_sweep
    from calotype.cli.progress import show_progress

    with show_progress() as bar:
        return run_sweep(plan, bar)


def show(done: "SweepOutcome", out: Path, as_json: bool) -> None:
    """Print the results of a sweep and its warnings."""
    from calotype.bench.sweep.table import lines_of, warnings_of
    from calotype.cli.output import print_json
    from calotype.spec.records.measurement import FILE

    if as_json:
        print_json([_brief(one) for one in done.measurements])
    elif done.measurements:
        print_lines(lines_of(done.measurements))
    for warning in warnings_of(done.measurements):
        typer.echo(f"warning: {warning}", err=True)
    if not done.finished:
        typer.echo("stopped; run the same command to resume", err=True)
    elif not as_json:
        typer.echo(f"results are in {out / FILE}")


def _brief(one: "Measurement") -> dict[str, Any]:
    return one.model_dump(mode="json", exclude={"fingerprint"})


def print_lines(lines: "list[dict[str, str]]") -> None:
    """Print rows as a table, or as paragraphs where a table would cut words."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from calotype.cli.output import console

    names = [name for name in lines[0] if any(line[name] for line in lines)]
    widths = {name: _least_width([name, *(line[name] for line in lines)]) for name in names}
    out = console()
    if sum(widths.values()) + len(names) + 1 > out.width:
        _print_paragraphs([{name: line[name] for name in names} for line in lines])
        return
    table = Table(box=SIMPLE_HEAD, padding=0)
    for name, width in widths.items():
        table.add_column(name, overflow="fold", min_width=width)
    for line in lines:
        table.add_row(*(line[name] for name in names))
    out.print(table)


def _print_paragraphs(lines: "list[dict[str, str]]") -> None:
    from rich.padding import Padding

    from calotype.cli.output import console

    out = console()
    for line in lines:
        [title, *rest] = line.items()
        out.print(title[1], style="bold")
        text = " · ".join(f"{name} {value}" for name, value in rest if value)
        out.print(Padding(text, (0, 0, 0, 2)))


def _least_width(cells: "list[str]") -> int:
    """The column width that cuts no word and keeps cells within the line limit."""
    longest_word = max(len(word) for cell in cells for word in cell.split())
    return max(min(longest_word, _LONGEST_WORD), *(-(-len(cell) // _MOST_LINES) for cell in cells))
