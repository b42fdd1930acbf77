"""`calotype engine calibrate`: measure activation ranges for the preset `int8-static`."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder


def command(
    model: Annotated[str, typer.Argument(help="Model: catalogue name, file, folder, hub id or random:NAME.")],
    prompts: Annotated[
        Path | None, typer.Option(help="File with one prompt per line. Default: eight built-in prompts.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Sampling steps per image.")] = 12,
    size: Annotated[
        int | None, typer.Option(help="Width and height in pixels. Default: the native size of the model.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16. Default: fp16 on a GPU, fp32 on a CPU.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Generate images and record the activation ranges that the preset `int8-static` needs.

    The calibration is valid for exactly these weights, on any device. Each run replaces the previous one.
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
            raise RequestError([Problem("prompts", f"{prompts} holds no prompt; write one per line")])
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
    typer.echo(f"calibrated with {len(chosen)} images of {steps} steps: {place}")
