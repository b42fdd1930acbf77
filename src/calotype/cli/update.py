"""`calotype update`: rolling update of the replicas of a running deployment."""

from typing import Annotated

import typer

from calotype.cli.common_options import with_groups
from calotype.cli.serve_options import ModelOptions, given_options
from calotype.cli.serve_options_ray import ReplicaOptions


@with_groups
def update(
    *,
    name: Annotated[str, typer.Argument(help="Name of the deployment.")],
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Models to serve. Default: unchanged.")
    ] = None,
    run: ModelOptions,
    replicas: ReplicaOptions,
) -> None:
    """Replace the replicas of a deployment (--engine ray) one by one; settings not given stay as they are.

    Jobs are accepted and run meanwhile. Without options, replicas restart, for example on a new version.
    """
    from calotype.cli.output import console
    from calotype.serve.lifecycle.api import update as replace

    changes = {"models": models or None, **run.as_plan(), "cluster": replicas.cluster() or None}
    with console(stderr=True).status(f"updating {name}"):
        replace(name, **given_options(changes))
    typer.echo(f"{name} is updated")
