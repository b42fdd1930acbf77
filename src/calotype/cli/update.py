"""`calotype update`: replicas of a running deployment replaced one by one."""

from typing import Annotated

import typer

from calotype.cli.common_options import with_groups
from calotype.cli.serve_options import ModelOptions, given_options
from calotype.cli.serve_options_ray import ReplicaOptions


@with_groups
def update(
    *,
    name: Annotated[str, typer.Argument(help="The deployment's name.")],
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Default: those it has.")
    ] = None,
    run: ModelOptions,
    crowd: ReplicaOptions,
) -> None:
    """Replace a deployment's replicas (--engine ray) one by one; what is not said stays as it is.

    Jobs are accepted and done meanwhile. With no options, replicas just start again: for a new version.
    """
    from calotype.cli.output import console
    from calotype.serve.lifecycle.api import update as replace

    changes = {"models": models or None, **run.as_plan(), "cluster": crowd.cluster() or None}
    with console(stderr=True).status(f"updating {name}"):
        replace(name, **given_options(changes))
    typer.echo(f"{name} is updated")
