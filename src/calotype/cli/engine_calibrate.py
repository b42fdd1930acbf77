"""`calotype engine calibrate`: what the preset `int8-static` has to know of a model."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder


def command(
    model: Annotated[str, typer.Argument(help="Catalogue name, file, folder, hub id or random:NAME.")],
    prompts: Annotated[
        Path | None, typer.Option(help="A file with a prompt a line; eight of ours if not said.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of each picture.")] = 12,
    size: Annotated[int | None, typer.Option(help="Width and height; the model's own if not said.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16; fp16 on a GPU, fp32 on a CPU if not said.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make pictures of some prompts and note how large numbers get, for the preset `int8-static`.

    It holds for these very weights, on any device, and is made anew each time it is asked for.
    """
    from calotype.cli.output import print_json
    from calotype.cli.progress import show_progress
    from calotype.core.errors import Problem, RequestError
    from calotype.engine.load import load
    from calotype.engine.quantization.calibrate import PROMPTS, calibrate

    chosen = PROMPTS
    if prompts is not None:
        try:
            chosen = tuple(line.strip() for line in prompts.read_text("utf-8").splitlines() if line.strip())
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError([Problem("prompts", f"{prompts} cannot be read: {error}")]) from None
        if not chosen:
            raise RequestError([Problem("prompts", f"{prompts} holds no prompt; write one a line")])
    with show_progress() as bar:
        engine = load(
            model,
            device=device,
            precision=precision,
            preset="baseline",
            models_folder=models,
            progress=bar,
        )
        place = calibrate(engine.model, prompts=chosen, steps=steps, size=size, progress=bar)
    if as_json:
        print_json({"file": place, "prompts": len(chosen), "steps": steps})
        return
    typer.echo(f"calibrated with {len(chosen)} pictures of {steps} steps: {place}")
