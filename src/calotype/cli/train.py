"""`calotype train`: run a recipe or measure it, prepare its data, show it, export what it made."""

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from calotype.cli.common_options import AsJson, ModelsFolder, ModelsFolderThere, check_models_folder
from calotype.cli.launch_options import File, GpusPerNode, LaunchOptions, Nodes, Sets, Where, typed
from calotype.cli.train_table import table

if TYPE_CHECKING:
    import torch

    from calotype.spec.recipe import Recipe
    from calotype.train.benchmark import BenchmarkPlan
    from calotype.train.recipes import ResolvedRecipe
    from calotype.train.train import Outcome


class _RunsRecipes(TyperGroup):
    """`calotype train RECIPE` is `calotype train run RECIPE`: what is no verb is a recipe."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunsRecipes,
    no_args_is_help=True,
    help="Train a recipe: calotype train RECIPE KEY=VALUE...; export what it made.",
)
app.command()(table)


@app.command("run")
def run(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="A recipe's name, or a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="For instance model.micro_batch_size=8."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show every value and where it came from; train nothing.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    models: ModelsFolderThere = None,
    as_json: AsJson = False,
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Measure some steps and print a row; keeps no checkpoint.")
    ] = False,
    benchmark_steps: Annotated[int, typer.Option(min=1, help="With --benchmark: steps to measure.")] = 30,
    warmup_steps: Annotated[
        int, typer.Option(min=0, help="With --benchmark: steps before the clock starts.")
    ] = 10,
    record: Annotated[
        Path | None,
        typer.Option(
            help="With --benchmark: a file for the whole record; one in the run's folder if not said."
        ),
    ] = None,
    ceiling_tflops: Annotated[
        float | None,
        typer.Option(min=1e-6, help="With --benchmark: the device's measured best, to tell MFU from."),
    ] = None,
    launch: Where = None,
    launch_file: File = None,
    launch_set: Sets = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
) -> None:
    """Train a recipe. Goes on where it stopped; SIGTERM and Ctrl-C save and end with 0.

    Several devices: calotype train RECIPE trainer.devices=N; several machines: calotype train RECIPE
    --launch slurm --nodes 2 --gpus-per-node 8
    """
    from calotype.train.recipes import load_recipe

    if print_config:
        _print_config(load_recipe(recipe, overrides or []), as_json)
        return
    if not benchmark and (record or ceiling_tflops):
        from calotype.core.errors import Problem, RequestError

        name = "--record" if record else "--ceiling-tflops"
        raise RequestError([Problem(name, "says something about a benchmark; add --benchmark")])
    asked = LaunchOptions(launch, launch_file, launch_set or (), nodes, gpus_per_node)
    if asked.elsewhere():
        from calotype.cli.train_launch import submit_training

        submit_training(asked, context, as_json)
        return
    check_models_folder(models)
    chosen = load_recipe(recipe, overrides or []).recipe
    if not benchmark:
        from calotype.train.start_weights import check_weights_are_chosen

        check_weights_are_chosen(chosen)
    _start_others("run", context, chosen, as_json, take_stops=not benchmark)
    place = _place(device)
    if benchmark:
        from calotype.train.benchmark import BenchmarkPlan, usual_record

        options = {"--benchmark-steps": benchmark_steps, "--warmup-steps": warmup_steps}
        command = _typed(recipe, *(overrides or []), "--benchmark", options=options)
        file = record or usual_record(chosen, benchmark_steps, warmup_steps)
        plan = BenchmarkPlan(command, benchmark_steps, warmup_steps, ceiling_tflops, file)
        _benchmark(chosen, plan, place, models, as_json, tell_where=record is None)
    else:
        _train(chosen, place, models, as_json)


def _place(device: str | None) -> "torch.device | None":
    """The device if one was named; a GPU is looked for later if not."""
    from calotype.engine.device import choose_device

    return choose_device(device) if device else None


def _start_others(
    verb: str, context: typer.Context, recipe: "Recipe", as_json: bool, *, take_stops: bool = True
) -> None:
    """Where the recipe wants several processes and nobody started them: start them, and end as they do."""
    from calotype.train.distributed.launch_local import run_processes, wants_processes

    if not wants_processes(recipe):
        return
    arguments, options = typed(context)
    # Recipes and folders may be called as an option is.
    words = ["train", verb, *options, *(["--json"] if as_json else []), "--", *arguments]
    raise typer.Exit(run_processes(recipe.trainer.devices, words, take_stops=take_stops))


def _train(recipe: "Recipe", device: "torch.device | None", models: Path | None, as_json: bool) -> None:
    from calotype.cli.progress import show_progress
    from calotype.train.signals import end_at_once
    from calotype.train.train import train

    with show_progress() as bar:
        outcome = train(recipe, device=device, progress=bar, models=models, owns_process=True)
    if os.environ.get("RANK", "0") == "0":
        _tell(outcome, as_json)  # all ranks end alike; the first says so
    if not outcome.begun:
        end_at_once()


def _tell(outcome: "Outcome", as_json: bool) -> None:
    from calotype.cli.output import print_json

    if as_json:
        print_json(outcome)
        return
    if not outcome.begun:
        way = f"goes on from step {outcome.step}" if outcome.step else "begins again"
        typer.echo(f"stopped before its first step was over; the same command {way}")
        return
    how = "stopped" if outcome.stopped_early else "done"
    typer.echo(f"{how} at step {outcome.step} ({outcome.samples} samples); checkpoints in {outcome.folder}")
    if outcome.random_weights:
        typer.echo("the model started from random numbers (model.weights=random)")
    if outcome.unreadable:
        some = ", ".join(outcome.unreadable[:5]) + (", …" if len(outcome.unreadable) > 5 else "")
        where = outcome.folder / "unreadable-rank*.jsonl"
        typer.echo(f"could not be read: {len(outcome.unreadable)} samples ({some}); why is in {where}")


def _benchmark(
    recipe: "Recipe",
    plan: "BenchmarkPlan",
    device: "torch.device | None",
    models: Path | None,
    as_json: bool,
    *,
    tell_where: bool,
) -> None:
    from calotype.cli.output import print_json
    from calotype.cli.progress import progress_for
    from calotype.train.benchmark import benchmark

    with progress_for() as bar:
        done = benchmark(recipe, plan, device=device, progress=bar, models=models)
    if done.is_first:
        if as_json:
            print_json(done.record)
        else:
            typer.echo(done.record.markdown())
        if tell_where:
            typer.echo(f"the record is in {plan.record_file}", err=True)
    if done.record.message is not None:
        typer.echo(f"error: {done.record.message}", err=True)
    raise typer.Exit(int(done.exit_code))


def _typed(*words: str, options: dict[str, int]) -> str:
    """The command as a person would type it, with torchrun where it was started so."""
    named = [f"{name}={value}" for name, value in options.items()]
    program = ["calotype", "train"]
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        local = os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // int(local)
        program = ["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={local}", "-m", *program]
    return shlex.join([*program, *words, *named])


@app.command()
def precompute(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="A recipe's name, or a YAML file.")],
    destination: Annotated[Path, typer.Argument(help="A folder for the results, or one to go on with.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...")] = None,
    dtype: Annotated[str, typer.Option(help="fp32, fp16 or bf16: what the results are kept in.")] = "fp16",
    samples_per_shard: Annotated[
        int | None, typer.Option(min=1, help="About 1024, a multiple of the micro-batch, if not said.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Encode a recipe's pictures and captions once; train on them with data.kind=precomputed.

    Goes on after the last complete shard; SIGTERM and Ctrl-C end with 0. Latents are the mean of the
    autoencoder's distribution. Several devices share the work, as in training.
    """
    from calotype.cli.output import print_json
    from calotype.cli.progress import progress_for
    from calotype.train.precompute.run import precompute as encode
    from calotype.train.recipes import load_recipe
    from calotype.train.start_weights import check_encoders_are_chosen

    chosen, place = load_recipe(recipe, overrides or []).recipe, _place(device)
    check_encoders_are_chosen(chosen)
    _start_others("precompute", context, chosen, as_json)
    with progress_for() as bar:
        done = encode(
            chosen,
            destination,
            dtype=dtype,
            samples_per_shard=samples_per_shard,
            device=place,
            progress=bar,
            models=models,
        )
    if as_json:
        print_json(done)
        return
    part = f" (part {done.part} of {done.num_parts})" if done.num_parts > 1 else ""
    how = "done" if done.finished else "stopped; the same command goes on"
    typer.echo(f"{how}: {done.num_samples} samples in {done.folder}{part}")
    if done.report.count:
        typer.echo(str(done.report))


@app.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """List the recipes that come with Calotype."""
    from calotype.cli.output import print_json
    from calotype.train.recipes import recipe_names

    if as_json:
        print_json(recipe_names())
    else:
        typer.echo("\n".join(recipe_names()))


@app.command()
def export(
    recipe: Annotated[str, typer.Argument(help="The recipe that was run.")],
    destination: Annotated[
        Path, typer.Argument(help="A new folder or file for the model, LoRA, word or VAE.")
    ],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...")] = None,
    dtype: Annotated[str, typer.Option(help="fp32, fp16 or bf16; for whole models.")] = "fp16",
    live: Annotated[bool, typer.Option("--live", help="The live weights instead of their average.")] = False,
    best: Annotated[
        bool, typer.Option("--best", help="The checkpoint with the lowest metric instead of the newest.")
    ] = False,
    samples: Annotated[
        int, typer.Option(min=1, help="For a VAE: samples of the data to measure its scale on.")
    ] = 1024,
    device: Annotated[
        str | None, typer.Option(help="For a VAE: where to measure; a GPU if there is one.")
    ] = None,
    models: ModelsFolder = None,
) -> None:
    """Write what a run has learned so far: a model, a LoRA, a learned word or an autoencoder.

    An autoencoder becomes a diffusers folder with the scale of its latents in its configuration; train a
    UNet on it with model.vae=FOLDER.
    """
    from calotype.engine.device import choose_device
    from calotype.train.export import export as write
    from calotype.train.recipes import load_recipe

    step = write(
        load_recipe(recipe, overrides or []).recipe,
        destination,
        dtype=dtype,
        live=live,
        best=best,
        models=models,
        device=choose_device(device),
        samples=samples,
    )
    typer.echo(f"wrote {destination} from step {step}")


def _print_config(resolved: "ResolvedRecipe", as_json: bool) -> None:
    from calotype.cli.output import console, print_json
    from calotype.spec.overrides import flatten

    values = flatten(resolved.recipe.model_dump(mode="json"))
    if as_json:
        print_json({key: {"value": value, "source": resolved.sources[key]} for key, value in values.items()})
        return
    width = max(len(key) for key in values)
    out = console()
    for key, value in values.items():
        # As YAML and the command line take it: null, true and not None, True.
        said = value if isinstance(value, str) else json.dumps(value)
        out.print(f"{key:<{width}}  {said}   ({resolved.sources[key]})", soft_wrap=True)
