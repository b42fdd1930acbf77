"""`calotype serve` and `calotype deploy`: run a deployment in the foreground or in the background."""

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson, with_groups
from calotype.cli.serve_options import ForegroundOptions, ReachOptions, ServingOptions, given_options
from calotype.cli.serve_options_ray import Engine, RayOptions, chosen_engine

if TYPE_CHECKING:
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.serve.lifecycle.registry import DeploymentDir

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL...", help="Models to serve: catalogue name, file, folder or hub id. Default: emoji."
    ),
]
Name = Annotated[str | None, typer.Option(help="Name of the deployment. Default: calotype.")]


@with_groups
def serve(
    *,
    models: Models = None,
    name: Name = None,
    engine: Engine = None,
    workers: ServingOptions,
    reach: ForegroundOptions,
    ray: RayOptions,
) -> None:
    """Serve models over HTTP and gRPC with a durable queue, in the foreground; Ctrl-C stops the server."""
    import asyncio

    from calotype.cli.output import console
    from calotype.serve.lifecycle.main import log_as_json
    from calotype.serve.lifecycle.plan_checks import check_plan
    from calotype.serve.lifecycle.readiness_notifier import Kind, ReadinessNotifier
    from calotype.serve.lifecycle.registry import deployment_dir
    from calotype.serve.lifecycle.server import serve as run

    plan = _plan(models, name, engine, workers, reach, ray)
    place = deployment_dir(plan.name)
    out = console(stderr=True)

    class TerminalNotifier(ReadinessNotifier):
        """Also prints readiness to the terminal."""

        def notify(self, kind: Kind, text: str = "") -> None:
            super().notify(kind, text)
            if kind == "ready":
                confirm()
            if kind == "ready" and (running := place.running()) is not None:
                out.print(f"{plan.name} is ready: {running.http} (gRPC {running.grpc}); Ctrl-C drains")
                _print_notices(place)

    check_plan(plan, place)
    with place.held(), place.trying(plan) as confirm:
        log_as_json()
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        out.print(f"starting {plan.name} with {', '.join(plan.models)}")
        asyncio.run(run(plan, place, TerminalNotifier()))


@with_groups
def deploy(
    *,
    models: Models = None,
    name: Name = None,
    engine: Engine = None,
    workers: ServingOptions,
    reach: ReachOptions,
    ray: RayOptions,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Print a systemd unit instead of starting the deployment.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a deployment in the background and return when it is ready."""
    from calotype.cli.output import console, print_json
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.serve.lifecycle.daemon import deploy as start
    from calotype.serve.lifecycle.plan_checks import check_plan
    from calotype.serve.lifecycle.registry import deployment_dir
    from calotype.serve.lifecycle.systemd import unit

    plan = _plan(models, name, engine, workers, reach, ray)
    if systemd:
        place = deployment_dir(plan.name)
        check_plan(plan, place)
        if place.read("plan.json", DeploymentConfig) != plan:
            with place.held():
                place.keep_plan(plan)
        typer.echo(unit(plan, place), nl=False)
        return
    out = console(stderr=True)
    with out.status(f"starting {plan.name}") as line:
        running = start(plan, lambda text: line.update(f"starting {plan.name}: {text}"))
    _print_notices(deployment_dir(plan.name))
    if as_json:
        print_json(running)
        return
    typer.echo(f"{plan.name} is ready: {running.http} (gRPC {running.grpc})")
    typer.echo(f'try: calotype query {plan.name} "a red apple"')


def _print_notices(place: "DeploymentDir") -> None:
    for notice in place.notices():
        typer.echo(f"{place.name}: {notice}", err=True)


def _plan(
    models: list[str] | None,
    name: str | None,
    engine: str | None,
    workers: ServingOptions,
    reach: ReachOptions,
    ray: RayOptions,
) -> "DeploymentConfig":
    from calotype.core.extras import require_extra

    # Checked here, as a server in the background can report the failure only in its log.
    require_extra("serve")
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.serve.lifecycle.registry import DEFAULT_NAME, deployment_dir
    from calotype.serve.model_names import resolvable_names
    from calotype.spec.overrides import merge, parse_overrides

    chosen = DEFAULT_NAME if name is None else name
    if models is None and (deployment_dir(chosen).folder / "plan.json").is_file():
        models = list(deployment_dir(chosen).plan().models)
    given = given_options(workers.as_plan() | chosen_engine(engine, ray))
    models = [resolvable_names(model) for model in models or ["emoji"]]
    values = {"name": chosen, "models": models, "reached": reach.as_plan(), **given}
    merge(values, parse_overrides(workers.sets or ()))
    return DeploymentConfig.parse(values)
