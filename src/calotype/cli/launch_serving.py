"""`calotype launch render-serving`: Kubernetes manifests of a server."""

from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Models to serve, as for `calotype serve`. Default: emoji."),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Container image of the server (built from containers/serve.Dockerfile)."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="YAML file with settings of the server.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Setting of the server, for example max_replicas=4 or gpus=2; repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder. Default: print to stdout.")
    ] = None,
) -> None:
    """Print the Kubernetes manifests of a server: pods, service, autoscaler. Contacts no cluster."""
    from calotype.core.errors import NotFoundError
    from calotype.launch.kubernetes.serving import render_serving
    from calotype.spec.overrides import merge, parse_overrides, parse_yaml
    from calotype.spec.serving_manifest import ServingSpec

    values: dict[str, Any] = {}
    if file is not None:
        if not file.is_file():
            raise NotFoundError(f"no file {str(file)!r}; --file takes a YAML file of a server's settings")
        merge(values, parse_yaml(file.read_bytes(), str(file)))
    given = {"models": models or None, "image": image}
    merge(values, {key: value for key, value in given.items() if value is not None})
    merge(values, parse_overrides(sets or ()))
    rendered = render_serving(ServingSpec.parse(values))
    for name, text in rendered.files.items():
        if out is None:
            typer.echo(text, nl=False)
            continue
        out.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, encoding="utf-8")
        typer.echo(out / name)
    for note in rendered.notes:
        typer.echo(note, err=True)
