"""`calotype train`: train or benchmark a recipe, precompute its data, show its config, export its result."""

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from calotype.cli.common_options import AsJson, ModelsFolder, ModelsFolderThere, check_models_folder
from calotype.cli.examples import examples
from calotype.cli.launch_options import File, GpusPerNode, LaunchOptions, Nodes, Sets, Where, typed
from calotype.cli.train_table import table

if TYPE_CHECKING:
    import torch

    from calotype.spec.recipe import Recipe
    from calotype.train.benchmark import BenchmarkPlan
    from calotype.train.recipes import ResolvedRecipe
    from calotype.train.train import Outcome


class _RunsRecipes(TyperGroup):
    """Makes `calotype train RECIPE` short for `calotype train run RECIPE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunsRecipes,
    no_args_is_help=True,
    help="Train recipes (calotype train RECIPE KEY=VALUE...), benchmark them and export the results.",
)
app.command(
    epilog=examples(
        "calotype train table sd1-grid --out runs/grid",
        "calotype train table rows.yaml --out runs/rows --row-limit-s 1800",
    )
)(table)


@app.command(
    "run",
    epilog=examples(
        "calotype train sd15 data.path=DATA model.micro_batch_size=8",
        "calotype train sd2-base --launch slurm --nodes 2 --gpus-per-node 8",
        "calotype train sd15 --benchmark --benchmark-steps 50",
    ),
)
def run(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="Recipe name or YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="Recipe settings to override, for example model.micro_batch_size=8."
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every setting and its source, then exit.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolderThere = None,
    as_json: AsJson = False,
    benchmark: Annotated[
        bool,
        typer.Option("--benchmark", help="Measure some steps and print a table row; writes no checkpoint."),
    ] = False,
    benchmark_steps: Annotated[int, typer.Option(min=1, help="With --benchmark: measured steps.")] = 30,
    warmup_steps: Annotated[int, typer.Option(min=0, help="With --benchmark: warm-up steps.")] = 10,
    record: Annotated[
        Path | None,
        typer.Option(help="With --benchmark: record file. Default: a file in the folder of the run."),
    ] = None,
    ceiling_tflops: Annotated[
        float | None,
        typer.Option(min=1e-6, help="With --benchmark: peak TFLOP/s of the device, to compute MFU."),
    ] = None,
    launch: Where = None,
    launch_file: File = None,
    launch_set: Sets = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
) -> None:
    """Train a recipe, resuming from its last checkpoint; SIGTERM and Ctrl-C save one and exit with 0.

    For several devices set trainer.devices=N; for several nodes use --launch.
    """
    from calotype.train.recipes import load_recipe

    if print_config:
        _print_config(load_recipe(recipe, overrides or []), as_json)
        return
    if not benchmark and (record or ceiling_tflops):
        from calotype.core.errors import Problem, RequestError

        name = "--record" if record else "--ceiling-tflops"
        raise RequestError([Problem(name, "is a benchmark option; add --benchmark")])
    target = LaunchOptions(launch, launch_file, launch_set or (), nodes, gpus_per_node)
    if target.elsewhere():
        from calotype.cli.train_launch import submit_training

        submit_training(target, context, as_json)
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
    """The named device; without a name, training picks one later."""
    from calotype.engine.device import choose_device

    return choose_device(device) if device else None


def _start_others(
    subcommand: str, context: typer.Context, recipe: "Recipe", as_json: bool, *, take_stops: bool = True
) -> None:
    """Start the processes of a multi-device recipe, unless a launcher did, and exit with their code."""
    from calotype.train.distributed.launch_local import run_processes, wants_processes

    if not wants_processes(recipe):
        return
    arguments, options = typed(context)
    # "--", as a recipe or folder may have the name of an option.
    words = ["train", subcommand, *options, *(["--json"] if as_json else []), "--", *arguments]
    raise typer.Exit(run_processes(recipe.trainer.devices, words, take_stops=take_stops))


def _train(recipe: "Recipe", device: "torch.device | None", models: Path | None, as_json: bool) -> None:
    from calotype.cli.progress import show_progress
    from calotype.train.signals import end_at_once
    from calotype.train.train import train

    with show_progress() as bar:
        outcome = train(recipe, device=device, progress=bar, models=models, owns_process=True)
    if os.environ.get("RANK", "0") == "0":
        _report(outcome, as_json)  # all ranks have the same outcome; rank 0 reports it
    if not outcome.begun:
        end_at_once()


def _report(outcome: "Outcome", as_json: bool) -> None:
    from calotype.cli.output import print_json

    if as_json:
        print_json(outcome)
        return
    if not outcome.begun:
        start = f"resumes at step {outcome.step}" if outcome.step else "starts over"
        typer.echo(f"stopped before the first step finished; the same command {start}")
        return
    how = "stopped" if outcome.stopped_early else "done"
    typer.echo(f"{how} at step {outcome.step} ({outcome.samples} samples); checkpoints in {outcome.folder}")
    if outcome.random_weights:
        typer.echo("the model started from random weights (model.weights=random)")
    if outcome.unreadable:
        some = ", ".join(outcome.unreadable[:5]) + (", …" if len(outcome.unreadable) > 5 else "")
        where = outcome.folder / "unreadable-rank*.jsonl"
        number = len(outcome.unreadable)
        typer.echo(f"samples that could not be read: {number} ({some}); the reasons are in {where}")


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
    """The command as a user would type it, under torchrun if it runs under torchrun."""
    named = [f"{name}={value}" for name, value in options.items()]
    program = ["calotype", "train"]
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        local = os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // int(local)
        program = ["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={local}", "-m", *program]
    return shlex.join([*program, *words, *named])


@app.command(epilog=examples("calotype train precompute sd15 data/latents data.path=DATA"))
def precompute(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="Recipe name or YAML file.")],
    destination: Annotated[Path, typer.Argument(help="Output folder; an existing one is resumed.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Recipe settings to override.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Data type of the results: fp32, fp16 or bf16.")] = "fp16",
    samples_per_shard: Annotated[
        int | None,
        typer.Option(min=1, help="Samples per shard. Default: about 1024, a multiple of the micro-batch."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Encode the images and captions of a recipe once; train on the result with data.kind=precomputed.

    Resumes after the last complete shard; SIGTERM and Ctrl-C exit with 0. Latents are the mean of the VAE's
    distribution. Several devices share the work, as in training.
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
    how = "done" if done.finished else "stopped; run the same command to resume"
    typer.echo(f"{how}: {done.num_samples} samples in {done.folder}{part}")
    if done.report.count:
        typer.echo(str(done.report))


@app.command("list", epilog=examples("calotype train list"))
def list_recipes(as_json: AsJson = False) -> None:
    """List the built-in recipes."""
    from calotype.cli.output import print_json
    from calotype.train.recipes import recipe_names

    if as_json:
        print_json(recipe_names())
    else:
        typer.echo("\n".join(recipe_names()))


@app.command(
    epilog=examples(
        "calotype train export sd15 my-model",
        "calotype train export sd15 my-model.safetensors --best --dtype bf16",
    )
)
def export(
    recipe: Annotated[str, typer.Argument(help="Recipe name or YAML file of the run.")],
    destination: Annotated[
        Path, typer.Argument(help="New folder or file for the model, LoRA, embedding or VAE.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Recipe settings to override.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Data type of exported models: fp32, fp16 or bf16.")] = "fp16",
    live: Annotated[
        bool, typer.Option("--live", help="Export the live weights instead of their EMA.")
    ] = False,
    best: Annotated[
        bool,
        typer.Option("--best", help="Export the checkpoint with the lowest metric instead of the newest."),
    ] = False,
    samples: Annotated[
        int, typer.Option(min=1, help="VAE: data samples to measure the scale of its latents on.")
    ] = 1024,
    device: Annotated[
        str | None,
        typer.Option(help="VAE: device to measure on. Default: a GPU if there is one, else the CPU."),
    ] = None,
    models: ModelsFolder = None,
) -> None:
    """Export the result of a run so far: a model, LoRA, textual inversion embedding or VAE.

    A VAE becomes a diffusers folder with the scale of its latents in its configuration; train a UNet on it
    with model.vae=FOLDER.
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
        # As in YAML and on the command line: null and true, not None and True.
        text = value if isinstance(value, str) else json.dumps(value)
        out.print(f"{key:<{width}}  {text}   ({resolved.sources[key]})", soft_wrap=True)
