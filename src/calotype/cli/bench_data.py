"""`calotype bench data`: how fast a recipe's data is read, and how many GPUs that feeds."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, or a YAML file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for the records.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="For instance data.path=DATA.")
    ] = None,
    workers: Annotated[str, typer.Option(help="Numbers of worker processes, with commas between.")] = "0,1,2",
    batches: Annotated[int, typer.Option(min=1, help="Micro-batches by the clock.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Micro-batches before.")] = 10,
    gpu_samples_per_s: Annotated[
        float | None, typer.Option(min=1e-9, help="What one GPU trains, to tell how many are fed.")
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Read the recipe's batches by the clock and train nothing: the loader's limit, known beforehand.

    calotype bench data sd2-base data.kind=shards data.path=DATA --workers 0,4,8 --gpu-samples-per-s 48
    """
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
    typer.echo(f"everything is in {out / FILE}")


def _counts(text: str) -> list[int]:
    from calotype.core.errors import Problem, RequestError

    numbers = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in numbers):
        rule = f"{text!r} is no list of counts; write for instance 0,1,4"
        raise RequestError([Problem("--workers", rule, text)])
    return [int(part) for part in numbers]
