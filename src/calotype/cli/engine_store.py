"""`calotype engine build|list|verify|remove`: engines compiled ahead of time."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.common_options import AsJson, ModelsFolder

if TYPE_CHECKING:
    from calotype.engine.artifacts.store import Artifact
    from calotype.engine.artifacts.validity import Validity


def build(
    model: Annotated[str, typer.Argument(help="Model: catalogue name, file, folder, hub id or random:NAME.")],
    shapes: Annotated[str, typer.Option(help="WIDTHxHEIGHTxCOUNT, comma-separated: 512x512x1,1024x1024x4.")],
    preset: Annotated[str, typer.Option(help="Optimization preset; see `calotype engine presets`.")] = "fast",
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16. Default: fp16 on a GPU, fp32 on a CPU.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: a GPU if there is one, else the CPU.")
    ] = None,
    models: ModelsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compile a model ahead of time for the given shapes and store the result for later starts.

    A built engine applies to all models of the same architecture, on this kind of GPU, with these versions of
    torch and Triton. Existing engines are not built again.
    """
    from calotype.cli.output import print_json
    from calotype.cli.progress import show_progress
    from calotype.engine.artifacts.build import build as prepare
    from calotype.engine.artifacts.shapes import parse_shapes

    wanted = parse_shapes(shapes)
    with show_progress() as bar:
        built = prepare(
            model,
            preset=preset,
            shapes=wanted,
            precision=precision,
            device=device,
            models_folder=models,
            progress=bar,
        )
    artifact = built.artefact
    assert artifact.description
    if as_json:
        print_json({**_facts(artifact), "already": built.already})
        return
    size = sum(file.size_bytes for file in artifact.description.files)
    done = "was built already" if built.already else "built"
    typer.echo(f"{artifact.key}: {done}, {len(artifact.description.files)} files, {size / 1e6:.1f} MB")
    if not artifact.description.files:
        typer.echo(
            f"nothing is compiled for {artifact.description.target.device.name} with preset {preset!r}"
        )


def list_engines(as_json: AsJson = False) -> None:
    """List built engines and whether each is usable on this machine."""
    from calotype.cli.output import console, print_json
    from calotype.engine.artifacts.store import engines_dir, list_artifacts
    from calotype.engine.artifacts.validity import check_validity, current_environment

    machine = current_environment()
    checked = [(one, check_validity(one, machine)) for one in list_artifacts()]
    if as_json:
        print_json([{**_facts(one), "state": found.state, "reason": found.reason} for one, found in checked])
        return
    if not checked:
        typer.echo(f"no engines in {engines_dir()}; build one with `calotype engine build`")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("key", "model", "preset", "precision", "device", "shapes", "built", "state"):
        table.add_column(column, overflow="fold", no_wrap=column == "key")
    for one, found in checked:
        table.add_row(one.key, *_cells(one), found.state)
    console().print(table)


def verify(
    key: Annotated[str | None, typer.Argument(help="Key of an engine. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the files of built engines: ok, damaged (exit code 3), or stale with the reason.

    An engine is stale if other versions built it or if it is for another GPU.
    """
    from calotype.cli.output import print_json
    from calotype.core.errors import ExitCode
    from calotype.engine.artifacts.store import find_artifact, list_artifacts
    from calotype.engine.artifacts.validity import check_validity, current_environment

    machine = current_environment()
    found = [
        check_validity(one, machine)
        for one in ([find_artifact(key)] if key is not None else list_artifacts())
    ]
    if as_json:
        print_json(found)
    else:
        for one in found:
            typer.echo(_sentence(one))
    if any(one.state == "damaged" for one in found):
        raise typer.Exit(ExitCode.BAD_MODEL_FILE)


def remove(
    key: Annotated[str | None, typer.Argument(help="Key of an engine.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all engines.")] = False,
    stale: Annotated[bool, typer.Option("--stale", help="Remove stale and damaged engines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove built engines."""
    from calotype.cli.output import print_json
    from calotype.core.errors import Problem, RequestError
    from calotype.engine.artifacts import store
    from calotype.engine.artifacts.validity import check_validity, current_environment

    if (key is not None) + every + stale != 1:
        raise RequestError([Problem("remove", "needs one of KEY, --all and --stale")])
    if key is not None:
        keys = [store.find_artifact(key).key]
    else:
        machine = current_environment() if stale else None
        keys = [
            one.key
            for one in store.list_artifacts()
            if not machine or check_validity(one, machine).state != "ok"
        ]
        store.remove_unfinished()
    for one in keys:
        store.remove(one)
    if as_json:
        print_json({"removed": keys})
    else:
        typer.echo("\n".join(f"removed {one}" for one in keys) or "nothing to remove")


def _facts(one: "Artifact") -> dict[str, Any]:
    return {"key": one.key, "folder": one.folder, "description": one.description}


def _cells(one: "Artifact") -> list[str]:
    if one.description is None:
        return ["?"] * 6
    target = one.description.target
    shapes = ", ".join(str(shape) for shape in target.shapes)
    return [
        one.description.model,
        target.preset,
        target.precision,
        target.device.name,
        shapes,
        one.description.created[:10],
    ]


def _sentence(one: "Validity") -> str:
    return f"{one.key}: {one.state}" + (f" ({one.reason})" if one.reason else "")
