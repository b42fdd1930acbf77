"""`calotype engine`: models made ready for a runtime; `engine_store.py` has the verbs of prepared engines."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli import engine_calibrate, engine_presets, engine_store
from calotype.cli.common_options import AsJson, ModelsFolder

app = typer.Typer(no_args_is_help=True, help="Make models ready for a runtime.")
app.command("presets")(engine_presets.command)
app.command("calibrate")(engine_calibrate.command)
app.command("build")(engine_store.build)
app.command("list")(engine_store.list_engines)
app.command("verify")(engine_store.verify)
app.command("remove")(engine_store.remove)


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="Catalogue name, file, folder, hub id or random:NAME.")],
    destination: Annotated[Path, typer.Argument(help="A new folder.")],
    dtype: Annotated[str, typer.Option(help="fp32 or fp16.")] = "fp32",
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare each part with torch, at two sizes.")
    ] = True,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX files, for other runtimes: text encoders, UNet, VAE decoder and encoder.

    Batch, height, width and length of the prompt stay open. The folder is laid out as optimum's pipelines
    read it, with tokenizers, scheduler and configurations; weights of more than 2 GB get a file of their own.
    """
    from calotype.cli.output import print_json
    from calotype.cli.progress import show_progress
    from calotype.engine.onnx.export import export as write

    with show_progress() as bar:
        differences = write(model, destination, dtype=dtype, check=check, models_folder=models, progress=bar)
    if as_json:
        print_json({"folder": destination, "differences": differences})
        return
    for name, found in differences.items():
        said = (
            f"differs from torch by at most {found.absolute:.2g} ({found.relative:.2g} of the largest number)"
            if found
            else "not compared with torch"
        )
        typer.echo(f"{name}: {said}")
    typer.echo(f"wrote {destination}")
