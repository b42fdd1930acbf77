"""`calotype generate`: the knobs. What is done with them is in `generating`."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.spec.constants import IMAGE_FORMATS, PRECISIONS, SAMPLERS, SCHEDULES

_PICTURE, _MODEL, _START, _OUTPUT = "What to make", "Model and machine", "Starting from a picture", "Output"


_COMPLETIONS = {
    "--sampler": SAMPLERS,
    "--schedule": SCHEDULES,
    "--precision": PRECISIONS,
    "--format": IMAGE_FORMATS,
}


def _option(
    *names: str,
    help: str,  # noqa: A002 - typer's own word
    panel: str,
    least: int | None = None,
) -> typer.models.OptionInfo:
    values = list(_COMPLETIONS.get(names[0], ()))
    complete = (lambda incomplete: [v for v in values if v.startswith(incomplete)]) if values else None
    info: typer.models.OptionInfo = typer.Option(
        *names, help=help, rich_help_panel=panel, autocompletion=complete, min=least
    )
    return info


def command(
    prompts: Annotated[list[str] | None, typer.Argument(metavar="PROMPT...", help="What to show.")] = None,
    prompts_file: Annotated[
        Path | None, _option("--prompts-file", help="A file with one prompt a line.", panel=_PICTURE)
    ] = None,
    negative: Annotated[
        str | None, _option("--negative", help="What to keep away from.", panel=_PICTURE)
    ] = None,
    width: Annotated[
        int | None, _option("--width", "-W", help="Pixels, a multiple of 8.", panel=_PICTURE)
    ] = None,
    height: Annotated[
        int | None, _option("--height", "-H", help="Pixels, a multiple of 8.", panel=_PICTURE)
    ] = None,
    steps: Annotated[
        int | None,
        _option("--steps", help="Sampling steps. Default: the model's own, usually 20.", panel=_PICTURE),
    ] = None,
    cfg: Annotated[
        float | None,
        _option("--cfg", help="Guidance; 1 is off. Default: the model's own, usually 7.5.", panel=_PICTURE),
    ] = None,
    sampler: Annotated[
        str | None,
        _option("--sampler", help=f"{', '.join(SAMPLERS)}. Default: the model's own.", panel=_PICTURE),
    ] = None,
    schedule: Annotated[
        str | None,
        _option(
            "--schedule",
            help=f"Noise levels: {', '.join(SCHEDULES)}. Default: the model's own.",
            panel=_PICTURE,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        _option("--seed", help="Of the first picture; chosen and shown if not said.", panel=_PICTURE),
    ] = None,
    count: Annotated[
        int | None,
        _option("--count", "-n", help="Pictures per prompt, on consecutive seeds.", panel=_PICTURE),
    ] = None,
    eta: Annotated[
        float | None, _option("--eta", help="Fresh noise in ancestral samplers and ddim.", panel=_PICTURE)
    ] = None,
    clip_skip: Annotated[
        int | None, _option("--clip-skip", help="Text encoder layers to leave out.", panel=_PICTURE)
    ] = None,
    lora: Annotated[
        list[str] | None,
        _option("--lora", help="NAME[:STRENGTH[:TEXT_STRENGTH]]; may be given again.", panel=_PICTURE),
    ] = None,
    original_size: Annotated[
        str | None, _option("--original-size", help="SDXL: HEIGHTxWIDTH before the crop.", panel=_PICTURE)
    ] = None,
    crop: Annotated[str | None, _option("--crop", help="SDXL: TOPxLEFT of the crop.", panel=_PICTURE)] = None,
    target_size: Annotated[
        str | None, _option("--target-size", help="SDXL: HEIGHTxWIDTH after the crop.", panel=_PICTURE)
    ] = None,
    image: Annotated[Path | None, _option("--image", help="Start from this picture.", panel=_START)] = None,
    mask: Annotated[
        Path | None, _option("--mask", help="Paint only where this is white.", panel=_START)
    ] = None,
    strength: Annotated[
        float | None, _option("--strength", help="How far to leave the picture, 0 to 1.", panel=_START)
    ] = None,
    from_picture: Annotated[
        Path | None,
        _option("--from", help="Make the picture in this file again; other knobs change it.", panel=_START),
    ] = None,
    model: Annotated[
        str | None,
        _option(
            "--model",
            "-m",
            help="Catalogue name, file, folder, name in --models, hub id, random:NAME. Default: emoji.",
            panel=_MODEL,
        ),
    ] = None,
    vae: Annotated[
        str | None, _option("--vae", help="A file in the model folder's vae/.", panel=_MODEL)
    ] = None,
    preset: Annotated[
        str | None, _option("--preset", help="Optimisations. Default: fast.", panel=_MODEL)
    ] = None,
    precision: Annotated[
        str | None,
        _option(
            "--precision", help="fp32, fp16 or bf16; fp16 on a GPU, fp32 on a CPU if not said.", panel=_MODEL
        ),
    ] = None,
    device: Annotated[str | None, _option("--device", help="cpu, cuda or cuda:N.", panel=_MODEL)] = None,
    batch_size: Annotated[
        int | None,
        _option("--batch-size", help="Pictures at once; what fits if not said.", panel=_MODEL, least=1),
    ] = None,
    tile_vae: Annotated[
        bool | None,
        _option("--tile-vae/--whole-vae", help="Decode in tiles; when needed if not said.", panel=_MODEL),
    ] = None,
    config: Annotated[
        Path | None,
        _option("--config", help="Architecture of a file that is not a known model's.", panel=_MODEL),
    ] = None,
    prediction: Annotated[
        str | None,
        _option("--prediction", help="epsilon or v_prediction, where a file does not say.", panel=_MODEL),
    ] = None,
    models: ModelsFolder = None,
    out: Annotated[Path, _option("--out", "-o", help="Folder for the pictures.", panel=_OUTPUT)] = Path(
        "outputs"
    ),
    picture_format: Annotated[str, _option("--format", help="png, webp or jpeg.", panel=_OUTPUT)] = "png",
    grid: Annotated[
        list[str] | None,
        _option(
            "--grid",
            help="KNOB=V1,V2,…: a contact sheet over one knob, or two when given twice.",
            panel=_OUTPUT,
        ),
    ] = None,
    sheet: Annotated[
        bool,
        _option("--sheet", help="Also a contact sheet of all: prompts down, seeds across.", panel=_OUTPUT),
    ] = False,
    trials: Annotated[
        int | None,
        _option("--trials", help="Make the same again N times and print the time each took.", panel=_OUTPUT),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make pictures from prompts.

    The pictures' own files hold the whole request: `--from picture.png` makes one again.
    """
    from calotype.cli.generate_run import GenerateOptions, run

    micro = {"original_size": original_size, "crop_top_left": crop, "target_size": target_size}
    knobs = {
        "negative_prompt": negative,
        "width": width,
        "height": height,
        "steps": steps,
        "cfg": cfg,
        "sampler": sampler,
        "schedule": schedule,
        "seed": seed,
        "count": count,
        "eta": eta,
        "clip_skip": clip_skip,
        "loras": lora,
        "vae": vae,
        "strength": strength,
        "tile_vae": tile_vae,
        "micro": {key: value for key, value in micro.items() if value is not None} or None,
    }
    run(
        GenerateOptions(
            prompts=tuple(prompts or ()),
            prompts_file=prompts_file,
            knobs={key: value for key, value in knobs.items() if value is not None},
            image=image,
            mask=mask,
            from_picture=from_picture,
            model=model,
            preset=preset,
            precision=precision,
            device=device,
            batch_size=batch_size,
            config=config,
            prediction=prediction,
            models=models,
            out=out,
            picture_format=picture_format,
            grid=tuple(grid or ()),
            sheet=sheet,
            trials=trials,
            as_json=as_json,
        )
    )
