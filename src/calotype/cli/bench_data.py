"""`calotype bench data`: measure data loading of a recipe, and how many GPUs it can feed."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder


def command(
    recipe: Annotated[str, typer.Argument(help="Recipe name or YAML file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder for the records.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="Recipe settings to override, for example data.path=DATA."
        ),
    ] = None,
    workers: Annotated[
        str, typer.Option(help="Numbers of worker processes to measure, comma-separated.")
    ] = "0,1,2",
    batches: Annotated[int, typer.Option(min=1, help="Measured micro-batches.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Warm-up micro-batches.")] = 10,
    gpu_samples_per_s: Annotated[
        float | None,
        typer.Option(
            min=1e-9, help="Training rate of one GPU in samples/s, to compute how many GPUs are fed."
        ),
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast the data loader of a recipe delivers batches, without training."""
    from calotype.bench.dataloader.gpus_fed import Rate
    from calotype.bench.dataloader.measure import check, read_batches
    from calotype.bench.dataloader.measurement import DataPlan, measured
    from calotype.cli.output import print_json
    from calotype.spec.records.measurement import FILE
    from calotype.train.builders import requirements_before_loading
    from calotype.train.recipes import load_recipe

    chosen = load_recipe(recipe, overrides or []).recipe
    check(chosen)
    words = ["calotype", "bench", "data", recipe, *(overrides or []), "--out", "OUT", "--workers", workers]
    words += [f"--batches={batches}", f"--warmup={warmup}"]
    if gpu_samples_per_s is not None:
        words.append(f"--gpu-samples-per-s={gpu_samples_per_s:g}")
    plan = DataPlan(chosen, recipe, shlex.join(words), _counts(workers), out, gpu_samples_per_s)
    needs = requirements_before_loading(chosen, models)
    found = measured(plan, lambda count: read_batches(chosen, needs, count, batches, warmup))
    if as_json:
        print_json([one.model_dump(mode="json", exclude={"fingerprint"}) for one in found])
        return
    for one in found:
        cpu = one.series["cpu_per_sample"].summary.median
        rate = Rate(int(str(one.settings["workers"])), one.samples_per_s or 0.0, cpu)
        typer.echo(
            f"{one.point}: {rate.samples_per_s:.4g} samples/s, {rate.samples_per_core_s:.4g} per core"
            + "".join(f"\n  {note}" for note in one.notes)
        )
    typer.echo(f"results are in {out / FILE}")


def _counts(text: str) -> list[int]:
    from calotype.core.errors import Problem, RequestError

    numbers = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in numbers):
        rule = f"{text!r} is not a list of counts; write for example 0,1,4"
        raise RequestError([Problem("--workers", rule, text)])
    return [int(part) for part in numbers]
