"""`calotype deployments`, `logs`, `undeploy`: what was deployed, what it says, and its end."""

from typing import Annotated

import typer

from calotype.cli.common_options import AsJson

Name = Annotated[str, typer.Argument(help="The deployment's name.")]


def deployments(as_json: AsJson = False) -> None:
    """List deployments, running or not."""
    from rich.table import Column, Table

    from calotype.cli.output import console, print_json
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.serve.lifecycle.readiness import refusal_of
    from calotype.serve.lifecycle.registry import all_deployment_dirs

    # One that another version has written is still there, and may be running.
    found = [
        (place, place.read("plan.json", DeploymentConfig), place.running()) for place in all_deployment_dirs()
    ]
    refusals = {place.name: refusal_of(run) for place, _, run in found if run}
    if as_json:
        print_json(
            [
                {
                    "name": place.name,
                    "models": plan and plan.models,
                    "running": run,
                    "refusal": refusals.get(place.name),
                    "notices": place.notices(),
                }
                for place, plan, run in found
            ]
        )
        return
    # Whole on any terminal, as addresses are there to be copied.
    table = Table("name", "models", "state", Column("HTTP and gRPC", no_wrap=True), "process")
    for place, plan, run in found:
        where = ("\n".join(filter(None, (run.http, run.grpc))), str(run.pid)) if run else ("", "")
        models = ", ".join(plan.model_names) if plan else "(unreadable plan)"
        state = "stopped" if not run else "runs, not ready" if refusals[place.name] else "runs"
        table.add_row(place.name, models, state, *where)
    console().print(table if found else "no deployments; start one with `calotype deploy`")
    for place, _, _ in found:
        for text in filter(None, (refusals.get(place.name), *place.notices())):
            typer.echo(f"{place.name}: {text}")


def logs(
    name: Name,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Show what a deployment and its workers have logged."""
    import os
    import shutil

    from calotype.core.errors import NotFoundError
    from calotype.serve.lifecycle.registry import known_deployment

    log = known_deployment(name).log
    if not log.exists():
        raise NotFoundError(
            f"{name!r} has logged nothing yet; in the foreground its log goes to the terminal"
        )
    tail = shutil.which("tail")
    if follow and tail:
        # Nobody follows a growing file better.
        os.execv(tail, ["tail", "-n", str(lines), "-F", str(log)])  # noqa: S606 - no shell is wanted
    text = log.read_text("utf-8", errors="replace").splitlines()
    typer.echo("\n".join(text[len(text) - lines :] if lines else []))


def undeploy(
    name: Name,
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait for running jobs; they stay queued.")
    ] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Forget queue, history and pictures too.")] = False,
) -> None:
    """Stop a deployment: running jobs end first, what waits is there at the next start."""
    from calotype.cli.output import console
    from calotype.serve.lifecycle.daemon import undeploy as stop
    from calotype.serve.lifecycle.registry import known_deployment

    place = known_deployment(name)
    with console(stderr=True).status(f"stopping {name}"):
        stop(place, at_once=now, purge=purge)
    typer.echo(f"{name} is stopped" + (" and forgotten" if purge else ""))
