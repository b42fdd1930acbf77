"""`calotype deployments`, `logs` and `undeploy`: list deployments, show their logs, stop them."""

from typing import Annotated

import typer

from calotype.cli.common_options import AsJson

Name = Annotated[str, typer.Argument(help="Name of the deployment.")]


def deployments(as_json: AsJson = False) -> None:
    """List all deployments, running or stopped."""
    from rich.table import Column, Table

    from calotype.cli.output import console, print_json
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.serve.lifecycle.readiness import refusal_of
    from calotype.serve.lifecycle.registry import all_deployment_dirs

    # A deployment written by another version is listed too; it may be running.
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
    # Addresses are never cut, so that they can be copied.
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
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Number of lines to show, from the end.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")
    ] = False,
) -> None:
    """Show the log of a deployment and its workers."""
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
        # tail follows a growing file best.
        os.execv(tail, ["tail", "-n", str(lines), "-F", str(log)])  # noqa: S606 - no shell is wanted
    text = log.read_text("utf-8", errors="replace").splitlines()
    typer.echo("\n".join(text[len(text) - lines :] if lines else []))


def undeploy(
    name: Name,
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait for running jobs; they go back to the queue.")
    ] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete queue, history and images.")] = False,
) -> None:
    """Stop a deployment: running jobs finish first, queued jobs wait for the next start."""
    from calotype.cli.output import console
    from calotype.serve.lifecycle.daemon import undeploy as stop
    from calotype.serve.lifecycle.registry import known_deployment

    place = known_deployment(name)
    with console(stderr=True).status(f"stopping {name}"):
        stop(place, at_once=now, purge=purge)
    typer.echo(f"{name} is stopped" + (" and its data deleted" if purge else ""))
