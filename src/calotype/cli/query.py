"""`calotype query`: generate images on a deployment."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.common_options import AsJson

if TYPE_CHECKING:
    from calotype.serve.client import Progress


def command(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a local deployment, or HOST:PORT of the gRPC interface of a remote one."
        ),
    ],
    prompt: Annotated[str, typer.Argument(help="Text prompt: what the image shows.")],
    negative: Annotated[
        str | None, typer.Option("--negative", help="Negative prompt: what the image must not show.")
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", "-W", help="Image width in pixels, a multiple of 8.")
    ] = None,
    height: Annotated[
        int | None, typer.Option("--height", "-H", help="Image height in pixels, a multiple of 8.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of sampling steps. Default: 20.")] = None,
    cfg: Annotated[
        float | None, typer.Option(help="Classifier-free guidance scale; 1 turns it off. Default: 7.5.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="Sampler. Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise schedule. Default: karras.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the first image. Default: random.")] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Number of images, with consecutive seeds.")
    ] = None,
    lora: Annotated[
        list[str] | None,
        typer.Option("--lora", help="LoRA to apply: NAME[:STRENGTH[:TEXT_STRENGTH]]; repeatable."),
    ] = None,
    image: Annotated[Path | None, typer.Option(help="Initial image for image-to-image.")] = None,
    mask: Annotated[
        Path | None, typer.Option(help="Mask for inpainting: white is repainted, black is kept.")
    ] = None,
    strength: Annotated[
        float | None, typer.Option(help="Denoising strength, 0 to 1: how much the initial image changes.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model of the deployment to use. Default: its first.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Optimization preset. Default: the preset of the worker.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Priority from -100 to 100; jobs with a higher one run first.")
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(help="Fail the job if it takes longer than this many seconds. Default: no limit."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder for the images.")] = Path("outputs"),
    api_key: Annotated[
        str | None, typer.Option(help="API key, if the deployment requires one.", envvar="CALOTYPE_API_KEY")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="PEM file with the CA or server certificate of a remote deployment, for TLS."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Generate images on a deployment; Ctrl-C cancels the job."""
    from calotype.cli.generate_run import check_out
    from calotype.cli.output import print_json
    from calotype.cli.parsers import parse_lora
    from calotype.cli.progress import progress_for
    from calotype.core.paths import atomic_write
    from calotype.serve.client import client

    knobs: dict[str, Any] = {
        "negative_prompt": negative,
        "width": width,
        "height": height,
        "steps": steps,
        "cfg": cfg,
        "sampler": sampler,
        "schedule": schedule,
        "seed": seed,
        "count": count,
        "strength": strength,
        "loras": [parse_lora(text) for text in lora] if lora else None,
    }
    check_out(out)
    with client(name, api_key=api_key, certificate=certificate) as deployment, progress_for() as bar:
        seen = 0
        bar.start("queued", 1)

        def follow(progress: "Progress") -> None:
            nonlocal seen
            if progress.state == "queued":
                bar.describe("queued" if progress.position is None else f"queued, {progress.position} before")
                return
            if seen == 0:
                bar.start("sampling", progress.steps_total)
            bar.advance(max(0, progress.steps_done - seen))
            seen = max(seen, progress.steps_done)

        answer = deployment.query(
            prompt,
            image=image,
            mask=mask,
            model=model,
            preset=preset,
            priority=priority,
            deadline_s=deadline,
            on_progress=follow,
            **knobs,
        )
    paths = [out / f"{answer.job_id}-{index}.png" for index in range(len(answer.files))]
    for path, data in zip(paths, answer.files, strict=True):
        with atomic_write(path) as file:
            file.write(data)
    if as_json:
        print_json({"job": answer.job_id, "files": paths})
        return
    for path in paths:
        typer.echo(path)
