"""`calotype generate`: the options; `generate_run.py` does the work."""

from pathlib import Path
from typing import Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.spec.constants import IMAGE_FORMATS, PRECISIONS, SAMPLERS, SCHEDULES

_IMAGE, _MODEL, _START, _OUTPUT = "Image", "Model and device", "Image-to-image", "Output"


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
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT...", help="Text prompts: what the images show.")
    ] = None,
    prompts_file: Annotated[
        Path | None, _option("--prompts-file", help="File with one prompt per line.", panel=_IMAGE)
    ] = None,
    negative: Annotated[
        str | None, _option("--negative", help="Negative prompt: what the image must not show.", panel=_IMAGE)
    ] = None,
    width: Annotated[
        int | None, _option("--width", "-W", help="Image width in pixels, a multiple of 8.", panel=_IMAGE)
    ] = None,
    height: Annotated[
        int | None, _option("--height", "-H", help="Image height in pixels, a multiple of 8.", panel=_IMAGE)
    ] = None,
    steps: Annotated[
        int | None,
        _option(
            "--steps", help="Number of sampling steps. Default: the model's own, usually 20.", panel=_IMAGE
        ),
    ] = None,
    cfg: Annotated[
        float | None,
        _option(
            "--cfg",
            help="Classifier-free guidance scale; 1 turns it off. Default: the model's own, usually 7.5.",
            panel=_IMAGE,
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        _option("--sampler", help=f"Sampler: {', '.join(SAMPLERS)}. Default: the model's own.", panel=_IMAGE),
    ] = None,
    schedule: Annotated[
        str | None,
        _option(
            "--schedule",
            help=f"Noise schedule: {', '.join(SCHEDULES)}. Default: the model's own.",
            panel=_IMAGE,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        _option(
            "--seed", help="Seed of the first image. Default: random; the output shows it.", panel=_IMAGE
        ),
    ] = None,
    count: Annotated[
        int | None,
        _option("--count", "-n", help="Images per prompt, with consecutive seeds.", panel=_IMAGE),
    ] = None,
    eta: Annotated[
        float | None,
        _option(
            "--eta", help="Share of fresh noise in ancestral and SDE samplers and ddim, 0 to 1.", panel=_IMAGE
        ),
    ] = None,
    clip_skip: Annotated[
        int | None, _option("--clip-skip", help="Number of final text encoder layers to skip.", panel=_IMAGE)
    ] = None,
    lora: Annotated[
        list[str] | None,
        _option("--lora", help="LoRA to apply: NAME[:STRENGTH[:TEXT_STRENGTH]]; repeatable.", panel=_IMAGE),
    ] = None,
    original_size: Annotated[
        str | None,
        _option(
            "--original-size", help="SDXL size conditioning: HEIGHTxWIDTH before the crop.", panel=_IMAGE
        ),
    ] = None,
    crop: Annotated[
        str | None, _option("--crop", help="SDXL size conditioning: TOPxLEFT of the crop.", panel=_IMAGE)
    ] = None,
    target_size: Annotated[
        str | None,
        _option("--target-size", help="SDXL size conditioning: HEIGHTxWIDTH after the crop.", panel=_IMAGE),
    ] = None,
    image: Annotated[
        Path | None, _option("--image", help="Initial image for image-to-image.", panel=_START)
    ] = None,
    mask: Annotated[
        Path | None,
        _option("--mask", help="Mask for inpainting: white is repainted, black is kept.", panel=_START),
    ] = None,
    strength: Annotated[
        float | None,
        _option(
            "--strength", help="Denoising strength, 0 to 1: how much the initial image changes.", panel=_START
        ),
    ] = None,
    from_picture: Annotated[
        Path | None,
        _option(
            "--from",
            help="Reproduce the image in this file; other options override its settings.",
            panel=_START,
        ),
    ] = None,
    model: Annotated[
        str | None,
        _option(
            "--model",
            "-m",
            help="Catalogue name, file, folder, name in --models, hub id or random:NAME. Default: emoji.",
            panel=_MODEL,
        ),
    ] = None,
    vae: Annotated[
        str | None, _option("--vae", help="VAE to use: a file in vae/ of the model folder.", panel=_MODEL)
    ] = None,
    preset: Annotated[
        str | None,
        _option(
            "--preset",
            help="Optimization preset; see `calotype engine presets`. Default: fast.",
            panel=_MODEL,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        _option(
            "--precision", help="fp32, fp16 or bf16. Default: fp16 on a GPU, fp32 on a CPU.", panel=_MODEL
        ),
    ] = None,
    device: Annotated[
        str | None,
        _option(
            "--device",
            help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.",
            panel=_MODEL,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        _option(
            "--batch-size",
            help="Images per batch. Default: as many as fit into memory.",
            panel=_MODEL,
            least=1,
        ),
    ] = None,
    tile_vae: Annotated[
        bool | None,
        _option(
            "--tile-vae/--whole-vae",
            help="Decode in tiles or at once. Default: tiles if memory requires them.",
            panel=_MODEL,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        _option("--config", help="Architecture configuration for a file of an unknown model.", panel=_MODEL),
    ] = None,
    prediction: Annotated[
        str | None,
        _option("--prediction", help="epsilon or v_prediction, if the file does not say.", panel=_MODEL),
    ] = None,
    models: ModelsFolder = None,
    out: Annotated[Path, _option("--out", "-o", help="Output folder for the images.", panel=_OUTPUT)] = Path(
        "outputs"
    ),
    picture_format: Annotated[
        str, _option("--format", help="File format: png, webp or jpeg.", panel=_OUTPUT)
    ] = "png",
    grid: Annotated[
        list[str] | None,
        _option(
            "--grid",
            help="KNOB=V1,V2,…: contact sheet over one setting; give it twice for two.",
            panel=_OUTPUT,
        ),
    ] = None,
    sheet: Annotated[
        bool,
        _option(
            "--sheet",
            help="Also write a contact sheet: one row per prompt, one column per seed.",
            panel=_OUTPUT,
        ),
    ] = False,
    trials: Annotated[
        int | None,
        _option(
            "--trials",
            help="Generate N times with the same seed and print the time of each run.",
            panel=_OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Generate images from text prompts.

    Each image file stores its whole request: `--from image.png` reproduces the image.
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
