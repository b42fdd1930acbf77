"""`calotype engine`: presets, calibration, ONNX export, and engines built ahead of time."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli import engine_calibrate, engine_presets, engine_store
from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.cli.examples import examples

app = typer.Typer(
    no_args_is_help=True, help="Presets, calibration, ONNX export, and engines built ahead of time."
)
app.command("presets", epilog=examples("calotype engine presets"))(engine_presets.command)
app.command(
    "calibrate",
    epilog=examples(
        "calotype engine calibrate sdxl",
        "calotype engine calibrate sdxl --prompts prompts.txt --steps 20 --device cuda",
    ),
)(engine_calibrate.command)
app.command(
    "build",
    epilog=examples(
        "calotype engine build sdxl --shapes 1024x1024x1,1024x1024x4",
        "calotype engine build sd15 --shapes 512x512x8 --preset max-throughput",
    ),
)(engine_store.build)
app.command("list", epilog=examples("calotype engine list"))(engine_store.list_engines)
app.command("verify", epilog=examples("calotype engine verify", "calotype engine verify 1a2b3c --json"))(
    engine_store.verify
)
app.command("remove", epilog=examples("calotype engine remove --stale", "calotype engine remove 1a2b3c"))(
    engine_store.remove
)


@app.command(
    epilog=examples(
        "calotype engine export sd15 sd15-onnx",
        "calotype engine export sdxl sdxl-onnx --dtype fp16 --no-check",
    )
)
def export(
    model: Annotated[str, typer.Argument(help="Model: catalogue name, file, folder, hub id or random:NAME.")],
    destination: Annotated[Path, typer.Argument(help="New folder for the ONNX files.")],
    dtype: Annotated[str, typer.Option(help="Data type: fp32 or fp16.")] = "fp32",
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Compare the output of each component with torch, at two sizes."
        ),
    ] = True,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Export a model to ONNX: text encoders, UNet, VAE decoder and encoder.

    Batch size, height, width and prompt length stay dynamic. The folder has the layout of optimum's
    pipelines, with tokenizers, scheduler and configurations; weights over 2 GB go into a separate file.
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
        difference = (
            f"differs from torch by at most {found.absolute:.2g} ({found.relative:.2g} of the largest value)"
            if found
            else "not compared with torch"
        )
        typer.echo(f"{name}: {difference}")
    typer.echo(f"wrote {destination}")
