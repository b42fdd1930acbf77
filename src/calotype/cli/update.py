"""`calotype update`: replicas of a running deployment replaced one by one."""

from typing import Annotated, Any

import typer

from calotype.cli.options import ModelsFolder
from calotype.cli.serve_ray import Cpus, Crowd, Gpus, JobsEach, Least, Most, Replicas, Resources


def update(
    name: Annotated[str, typer.Argument(help="The deployment's name.")],
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Default: those it has.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Optimisations.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Rows of one UNet evaluation.")] = None,
    folder: ModelsFolder = None,
    replicas: Replicas = None,
    min_replicas: Least = None,
    max_replicas: Most = None,
    jobs_per_replica: JobsEach = None,
    gpus_per_replica: Gpus = None,
    cpus_per_replica: Cpus = None,
    replica_resource: Resources = None,
) -> None:
    """Replace a deployment's replicas (--engine ray) one by one; what is not said stays as it is.

    Jobs are accepted and done meanwhile. With no options, replicas just start again: for a new version.
    """
    from calotype.cli.output import console
    from calotype.serve.lifecycle.python import update as replace

    crowd = Crowd(
        None,
        replicas,
        min_replicas,
        max_replicas,
        jobs_per_replica,
        gpus_per_replica,
        cpus_per_replica,
        replica_resource,
    )
    said: dict[str, Any] = {
        "models": models or None,
        "preset": preset,
        "precision": precision,
        "max_rows": max_rows,
        "models_folder": folder,
        "cluster": crowd.cluster() or None,
    }
    with console(stderr=True).status(f"updating {name}"):
        replace(name, **{key: value for key, value in said.items() if value is not None})
    typer.echo(f"{name} is updated")
