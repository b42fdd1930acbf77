"""`calotype train`: run a recipe, show it, export what it made."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from calotype.cli.options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from calotype.train.recipes import ResolvedRecipe


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


@app.command("run")
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, or a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="For instance model.micro_batch_size=8."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show every value and where it came from; train nothing.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Train a recipe. Goes on where it stopped; SIGTERM and Ctrl-C save and end with 0.

    Several devices: torchrun --nproc-per-node=N -m calotype train RECIPE trainer.devices=N
    """
    from calotype.train.recipes import load_recipe

    resolved = load_recipe(recipe, overrides or [])
    if print_config:
        _print_config(resolved, as_json)
        return
    from calotype.cli.output import print_json
    from calotype.cli.progress import shown
    from calotype.engine.device import choose_device
    from calotype.train.run import train

    chosen = choose_device(device) if device else None
    with shown() as bar:
        outcome = train(resolved.recipe, device=chosen, progress=bar, models=models)
    if as_json:
        print_json(outcome)
        return
    how = "stopped" if outcome.stopped_early else "done"
    typer.echo(f"{how} at step {outcome.step} ({outcome.samples} samples); checkpoints in {outcome.folder}")
    if outcome.unreadable:
        typer.echo(
            f"{len(outcome.unreadable)} samples could not be read: {', '.join(outcome.unreadable[:5])}"
        )


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
    destination: Annotated[Path, typer.Argument(help="A new folder or file for the model, LoRA or word.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...")] = None,
    dtype: Annotated[str, typer.Option(help="fp32, fp16 or bf16; for whole models.")] = "fp16",
    live: Annotated[bool, typer.Option("--live", help="The live weights instead of their average.")] = False,
    models: ModelsFolder = None,
) -> None:
    """Write what a run has learned so far: a model, a LoRA or a learned word."""
    from calotype.train.export import export as write
    from calotype.train.recipes import load_recipe

    step = write(
        load_recipe(recipe, overrides or []).recipe, destination, dtype=dtype, live=live, models=models
    )
    typer.echo(f"wrote {destination} from step {step}")


def _print_config(resolved: "ResolvedRecipe", as_json: bool) -> None:
    from calotype.cli.output import console, print_json
    from calotype.train.recipes import flat

    values = flat(resolved.recipe.model_dump(mode="json"))
    if as_json:
        print_json({key: {"value": value, "source": resolved.sources[key]} for key, value in values.items()})
        return
    width = max(len(key) for key in values)
    out = console()
    for key, value in values.items():
        source = resolved.sources[key]
        out.print(
            f"{key:<{width}}  {value}" + ("" if source == "default" else f"   ({source})"), soft_wrap=True
        )
