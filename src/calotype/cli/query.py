"""`calotype query`: ask a deployment for pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.common_options import AsJson

if TYPE_CHECKING:
    from calotype.serve.client import Progress


def command(
    name: Annotated[
        str, typer.Argument(help="The deployment's name; elsewhere HOST:PORT of its gRPC interface.")
    ],
    prompt: Annotated[str, typer.Argument(help="What to show.")],
    negative: Annotated[str | None, typer.Option("--negative", help="What to keep away from.")] = None,
    width: Annotated[int | None, typer.Option("--width", "-W", help="Pixels, a multiple of 8.")] = None,
    height: Annotated[int | None, typer.Option("--height", "-H", help="Pixels, a multiple of 8.")] = None,
    steps: Annotated[int | None, typer.Option(help="Sampling steps. Default: 20.")] = None,
    cfg: Annotated[float | None, typer.Option(help="Guidance; 1 is off. Default: 7.5.")] = None,
    sampler: Annotated[str | None, typer.Option(help="Default: dpmpp_2m.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Noise levels. Default: karras.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the first picture; drawn at random if not given.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Pictures.")] = None,
    lora: Annotated[
        list[str] | None, typer.Option("--lora", help="NAME[:STRENGTH[:TEXT_STRENGTH]]; may be given again.")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="Start from this picture.")] = None,
    mask: Annotated[Path | None, typer.Option(help="Paint only where this is white.")] = None,
    strength: Annotated[float | None, typer.Option(help="How far to leave the picture.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="One of the deployment's.")] = None,
    preset: Annotated[str | None, typer.Option(help="Optimisations; the worker's own if not said.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; from -100 to 100.")] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds it has; then it fails. Default: any time.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pictures.")] = Path("outputs"),
    api_key: Annotated[
        str | None, typer.Option(help="If the deployment asks for one.", envvar="CALOTYPE_API_KEY")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="PEM file that one elsewhere is trusted by, for TLS.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have a deployment make pictures; Ctrl-C cancels."""
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
