"""`calotype serve` and `calotype deploy`: a deployment in the foreground and in the background."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calotype.cli.options import AsJson, ModelsFolder
from calotype.cli.serve_ray import (
    Cpus,
    Crowd,
    Engine,
    Gpus,
    JobsEach,
    Least,
    Most,
    RayAddress,
    Replicas,
    Resources,
    chosen_engine,
)

if TYPE_CHECKING:
    from calotype.serve.lifecycle.plan import DeploymentPlan

_REACH = "How it is reached"

Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL...", help="Catalogue name, file, folder, hub id. Default: emoji."),
]
Name = Annotated[str | None, typer.Option(help="What it is found by. Default: calotype.")]
Preset = Annotated[str, typer.Option(help="Optimisations; see `calotype engine presets`.")]
Precision = Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")]
Devices = Annotated[
    list[str] | None,
    typer.Option("--device", help="cpu, cuda:N, GPU-…, MIG-… or all; may be given again, a worker each."),
]
MaxRows = Annotated[int | None, typer.Option(help="Rows of one UNet evaluation, two a guided picture.")]
Records = Annotated[
    list[Path] | None,
    typer.Option("--records", help="Folder with measurements for the page; may be given again."),
]
Drain = Annotated[float, typer.Option("--drain", help="Seconds that running jobs have when it stops.")]
Host = Annotated[
    str, typer.Option(help="Address; anything but loopback needs an API key.", rich_help_panel=_REACH)
]
Port = Annotated[int, typer.Option(help="Of HTTP; 0 takes any free one.", rich_help_panel=_REACH)]
GrpcPort = Annotated[int, typer.Option(help="0 takes any free one.", rich_help_panel=_REACH)]
Certificate = Annotated[
    Path | None, typer.Option("--tls-certificate", help="PEM file; with --tls-key.", rich_help_panel=_REACH)
]
Key = Annotated[Path | None, typer.Option("--tls-key", help="PEM file.", rich_help_panel=_REACH)]
Admins = Annotated[
    list[str] | None,
    typer.Option("--admin", help="An API key's name that may load models.", rich_help_panel=_REACH),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        "--keys", help="Folder of a keys.json that lets clients in. Default: its own.", rich_help_panel=_REACH
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--allowed-host", help="A name of this server; may be given again.", rich_help_panel=_REACH),
]


def _plan(models: list[str] | None, name: str | None, values: dict[str, Any], reached: dict[str, Any]) -> Any:
    from calotype.serve.lifecycle.places import DEFAULT_NAME, place_of
    from calotype.serve.lifecycle.plan import DeploymentPlan

    chosen = name or DEFAULT_NAME
    if models is None and (place_of(chosen).folder / "plan.json").is_file():
        models = list(place_of(chosen).plan().models)
    given = {key: value for key, value in values.items() if value is not None}
    how = {key: value for key, value in reached.items() if value is not None}
    return DeploymentPlan.parse({"name": chosen, "models": models or ["emoji"], "reached": how, **given})


def serve(
    models: Models = None,
    name: Name = None,
    preset: Preset = "fast",
    precision: Precision = None,
    device: Devices = None,
    max_rows: MaxRows = None,
    drain: Drain = 30.0,
    folder: ModelsFolder = None,
    records: Records = None,
    host: Host = "127.0.0.1",
    port: Port = 8188,
    grpc_port: GrpcPort = 0,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    admin: Admins = None,
    keys: Keys = None,
    allowed_host: Hosts = None,
    engine: Engine = None,
    ray_address: RayAddress = None,
    replicas: Replicas = None,
    min_replicas: Least = None,
    max_replicas: Most = None,
    jobs_per_replica: JobsEach = None,
    gpus_per_replica: Gpus = None,
    cpus_per_replica: Cpus = None,
    replica_resource: Resources = None,
) -> None:
    """Serve models in the foreground: HTTP, gRPC and a durable queue, until Ctrl-C."""
    import asyncio

    from calotype.cli.output import console
    from calotype.serve.lifecycle.deploying import check_free
    from calotype.serve.lifecycle.main import log_as_json
    from calotype.serve.lifecycle.news import News
    from calotype.serve.lifecycle.places import place_of
    from calotype.serve.lifecycle.server import serve as run

    plan: DeploymentPlan = _plan(
        models,
        name,
        _workers(preset, precision, device, max_rows, drain, folder, records)
        | {"keys_folder": keys and keys.resolve()}
        | chosen_engine(
            engine,
            Crowd(
                ray_address,
                replicas,
                min_replicas,
                max_replicas,
                jobs_per_replica,
                gpus_per_replica,
                cpus_per_replica,
                replica_resource,
            ),
        ),
        {**_reached(host, port, grpc_port, tls_certificate, tls_key, admin), "allowed_hosts": allowed_host},
    )
    place = place_of(plan.name)
    check_free(place)
    place.keep_plan(plan)
    log_as_json()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    console(stderr=True).print(
        f"serving {', '.join(plan.models)} as {plan.name!r} on port {port}; Ctrl-C drains"
    )
    asyncio.run(run(plan, place, News()))


def deploy(
    models: Models = None,
    name: Name = None,
    preset: Preset = "fast",
    precision: Precision = None,
    device: Devices = None,
    max_rows: MaxRows = None,
    drain: Drain = 30.0,
    folder: ModelsFolder = None,
    records: Records = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    grpc_port: GrpcPort = 0,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    admin: Admins = None,
    keys: Keys = None,
    allowed_host: Hosts = None,
    engine: Engine = None,
    ray_address: RayAddress = None,
    replicas: Replicas = None,
    min_replicas: Least = None,
    max_replicas: Most = None,
    jobs_per_replica: JobsEach = None,
    gpus_per_replica: Gpus = None,
    cpus_per_replica: Cpus = None,
    replica_resource: Resources = None,
    systemd: Annotated[bool, typer.Option("--systemd", help="Print a systemd unit instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a deployment that outlives the shell; returns when it is ready."""
    from calotype.cli.output import console, print_json
    from calotype.serve.lifecycle.deploying import deploy as start
    from calotype.serve.lifecycle.places import place_of
    from calotype.serve.lifecycle.systemd import unit

    plan: DeploymentPlan = _plan(
        models,
        name,
        _workers(preset, precision, device, max_rows, drain, folder, records)
        | {"keys_folder": keys and keys.resolve()}
        | chosen_engine(
            engine,
            Crowd(
                ray_address,
                replicas,
                min_replicas,
                max_replicas,
                jobs_per_replica,
                gpus_per_replica,
                cpus_per_replica,
                replica_resource,
            ),
        ),
        {**_reached(host, port, grpc_port, tls_certificate, tls_key, admin), "allowed_hosts": allowed_host},
    )
    if systemd:
        place_of(plan.name).keep_plan(plan)
        typer.echo(unit(plan, place_of(plan.name)), nl=False)
        return
    out = console(stderr=True)
    with out.status(f"starting {plan.name}") as line:
        running = start(plan, lambda text: line.update(f"starting {plan.name}: {text}"))
    if as_json:
        print_json(running)
        return
    typer.echo(f"{plan.name} is ready: {running.http} (gRPC {running.grpc})")
    typer.echo(f'try: calotype query {plan.name} "a red apple"')


def _workers(
    preset: str,
    precision: str | None,
    device: list[str] | None,
    max_rows: int | None,
    drain: float,
    folder: Path | None,
    records: list[Path] | None,
) -> dict[str, Any]:
    return {
        "records": tuple(path.resolve() for path in records or ()) or None,
        "preset": preset,
        "precision": precision,
        "devices": device or None,
        "max_rows": max_rows,
        "drain_s": drain,
        "models_folder": folder,
    }


def _reached(
    host: str,
    port: int,
    grpc_port: int,
    certificate: Path | None,
    key: Path | None,
    admin: list[str] | None,
) -> dict[str, Any]:
    return {
        "host": host,
        "http_port": port,
        "grpc_port": grpc_port,
        "tls_certificate": None if certificate is None else certificate.resolve(),
        "tls_key": None if key is None else key.resolve(),
        "admins": admin or None,
    }
