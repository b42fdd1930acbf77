"""`calotype mig deploy`: one server per slice, as processes or containers, with a speed check of each."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.cli.examples import examples
from calotype.cli.mig_options import Driver, Yes

if TYPE_CHECKING:
    from calotype.mig.compose import Deployment, Served

_WORK, _CONTAINERS, _CHECK = "Serving", "Containers", "Speed check"


def add_to(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command(
        epilog=examples(
            "calotype mig deploy sd15 --first-port 9000", "calotype mig deploy sd15 --containers --yes"
        )
    )(deploy)


def deploy(
    model: Annotated[
        str, typer.Argument(help="Model: catalogue name, file, folder or random:NAME.")
    ] = "emoji",
    preset: Annotated[
        str, typer.Option(help="Optimization preset; see `calotype engine presets`.", rich_help_panel=_WORK)
    ] = "fast",
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16. Default: fp16.", rich_help_panel=_WORK)
    ] = None,
    engine: Annotated[
        str, typer.Option(help="calotype, or nothing for a fake engine in tests.", rich_help_panel=_WORK)
    ] = "calotype",
    models: ModelsFolder = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; any but loopback requires --keys.", rich_help_panel=_WORK),
    ] = "127.0.0.1",
    first_port: Annotated[
        int,
        typer.Option(
            min=1,
            max=65000,
            help="Port of the first slice; the others follow upwards.",
            rich_help_panel=_WORK,
        ),
    ] = 8081,
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder with the keys.json of API keys.", rich_help_panel=_WORK),
    ] = None,
    containers: Annotated[
        bool,
        typer.Option(
            "--containers", help="Start containers instead of processes.", rich_help_panel=_CONTAINERS
        ),
    ] = False,
    render: Annotated[
        bool,
        typer.Option("--render", help="Only write compose.yaml and run.sh.", rich_help_panel=_CONTAINERS),
    ] = False,
    image: Annotated[
        str, typer.Option(help="Container image; see docs/containers.md.", rich_help_panel=_CONTAINERS)
    ] = "calotype-serve:latest",
    inside: Annotated[
        str,
        typer.Option(
            "--command",
            help="Command of the container. Default: `calotype serve`.",
            rich_help_panel=_CONTAINERS,
        ),
    ] = "",
    container_port: Annotated[
        int,
        typer.Option(min=1, max=65535, help="HTTP port inside the container.", rich_help_panel=_CONTAINERS),
    ] = 8188,
    health_path: Annotated[
        str,
        typer.Option(help="URL path that returns 200 when the server is ready.", rich_help_panel=_CONTAINERS),
    ] = "/readyz",
    folder: Annotated[
        str,
        typer.Option(
            help="Data folder on the host, with a subfolder per slice.", rich_help_panel=_CONTAINERS
        ),
    ] = "/srv/calotype",
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Output folder of compose.yaml and run.sh.", rich_help_panel=_CONTAINERS
        ),
    ] = Path(),
    pictures: Annotated[
        int, typer.Option(min=0, help="Images to time on each slice; 0 for none.", rich_help_panel=_CHECK)
    ] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Sampling steps per image.", rich_help_panel=_CHECK)] = 20,
    patience: Annotated[
        float,
        typer.Option(min=0, help="Seconds to wait for a container to become ready.", rich_help_panel=_CHECK),
    ] = 600.0,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="CALOTYPE_API_KEY", help="API key for the speed check.", rich_help_panel=_CHECK),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Stop the servers of all slices.")] = False,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """Start one server per MIG slice, then time images on each over HTTP.

    Each process is a deployment (calotype deployments, logs, query). With --containers, --yes runs the script
    that --render writes.
    """
    from calotype.mig.compose import KEYS, Deployment, served
    from calotype.mig.open_driver import open_driver

    serve = ["serve", model, "--host", "0.0.0.0", "--port", str(container_port), "--preset", preset]  # noqa: S104 - inside its container
    serve += [*(["--precision", precision] if precision else []), *(["--keys", KEYS] if keys else [])]
    deployment = Deployment(
        image=image,
        command=tuple(shlex.split(inside)) or tuple(serve),
        first_port=first_port,
        container_port=container_port,
        health_path=health_path,
        folder=folder,
        keys=str(keys.resolve()) if keys else None,
    )
    slices = served(open_driver(driver).read(), deployment)
    if remove:
        _stop(slices, containers)
        return
    if render or containers:
        script = _written(slices, deployment, out, as_json)
        if render or not yes:
            if not render:
                typer.echo("nothing was started; add --yes to start", err=as_json)
            if as_json:
                _show(slices, [None] * len(slices), as_json)
            return
        _started(script)
    else:
        shared: dict[str, object] = {
            "models": (model,),
            "preset": preset,
            "precision": precision,
            "engine": engine,
        }
        shared |= {"models_folder": models, "keys_folder": keys.resolve() if keys else None}
        _deployed(slices, shared, host)
    check = _Check(_outside(host), api_key, pictures, steps, patience if containers else 0.0)
    speeds = [check.of(each) if pictures else None for each in slices]
    _show(slices, speeds, as_json)


@dataclass(frozen=True)
class _Check:
    """Speed check of a server."""

    host: str
    api_key: str | None
    pictures: int
    steps: int
    ready_timeout_s: float

    def of(self, each: "Served") -> float:
        """Median seconds per image on a slice, after one uncounted warm-up image."""
        from calotype.serve.probe import HttpProbe

        probe = HttpProbe(f"http://{self.host}:{each.port}", self.api_key)
        if self.ready_timeout_s:
            probe.wait_ready(self.ready_timeout_s)
        request = {"steps": self.steps, "seed": 0}
        probe.time_image("a red apple", **request)
        return median(probe.time_image("a red apple", **request) for _ in range(self.pictures))


def _deployed(slices: "Sequence[Served]", shared: dict[str, object], host: str) -> None:
    from calotype.cli.output import console
    from calotype.serve.lifecycle.config import DeploymentConfig
    from calotype.serve.lifecycle.deploy_many import deploy_together

    plans = [
        DeploymentConfig.parse(
            {
                "name": each.name,
                "devices": (each.uuid,),
                "reached": {"host": host, "http_port": each.port, "grpc_port": 0},
                **shared,
            }
        )
        for each in slices
    ]
    with console(stderr=True).status("starting") as line:
        deploy_together(plans, lambda text: line.update(f"starting {text}"))


def _written(slices: "Sequence[Served]", deployment: "Deployment", out: Path, to_stderr: bool) -> Path:
    """Write the two files and print the remaining manual steps, to stderr if stdout is for JSON."""
    from calotype.core.paths import atomic_write
    from calotype.mig import compose as rendering

    script = out / "run.sh"
    for path, text in (
        (out / "compose.yaml", rendering.compose_file(slices, deployment)),
        (script, rendering.run_script(slices, deployment)),
    ):
        with atomic_write(path, "w") as file:
            file.write(text)
        typer.echo(f"wrote {path}", err=to_stderr)
    for each in slices:
        typer.echo(f"{each.name}: {each.profile} {each.uuid} on port {each.port}", err=to_stderr)
    typer.echo(
        "\n".join(["then run once:", rendering.cdi_line(), *rendering.firewall_lines(slices)]), err=to_stderr
    )
    return script


def _started(script: Path) -> None:
    """Generate the CDI spec, by which container engines name slices, then run the script."""
    import shutil

    from calotype.mig.persist import CDI_SPEC

    if shutil.which("nvidia-ctk"):
        _run(["nvidia-ctk", "cdi", "generate", f"--output={CDI_SPEC}"])
    _run(["sh", str(script)])


def _run(words: list[str]) -> None:
    import subprocess

    from calotype.core.errors import CalotypeError, NotFoundError

    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    except FileNotFoundError:
        raise NotFoundError(f"no program {words[0]} on this machine to run: {shlex.join(words)}") from None
    if done.returncode:
        stderr = done.stderr.strip()[-500:]
        raise CalotypeError(f"{shlex.join(words)} ended with {done.returncode}: {stderr}")


def _stop(slices: "Sequence[Served]", containers: bool) -> None:
    from calotype.serve.lifecycle.daemon import stop
    from calotype.serve.lifecycle.registry import deployment_dir

    for each in slices:
        if containers:
            _run(["docker", "rm", "--force", each.name])
        elif running := deployment_dir(each.name).running():
            stop(running, at_once=False)
        else:
            typer.echo(f"{each.name} is not running")
            continue
        typer.echo(f"stopped {each.name}")


def _outside(host: str) -> str:
    """The address that other machines use for a server that listens on all interfaces."""
    import socket

    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: connecting a UDP socket only chooses the route.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _show(slices: "Sequence[Served]", speeds: Sequence[float | None], as_json: bool) -> None:
    from rich.table import Table

    from calotype.cli.output import console, print_json

    rows = [
        {"name": each.name, "profile": each.profile, "uuid": each.uuid, "port": each.port, "picture_s": took}
        for each, took in zip(slices, speeds, strict=True)
    ]
    if as_json:
        print_json(rows)
        return
    table = Table("slice", "profile", "port", "s/image", "images/s", "of the fastest", box=None)
    fastest = min((took for took in speeds if took is not None), default=0.0)
    for each, took in zip(slices, speeds, strict=True):
        cells = ("", "", "") if took is None else (f"{took:.3f}", f"{1 / took:.2f}", f"{fastest / took:.0%}")
        table.add_row(each.name, each.profile, str(each.port), *cells)
    console().print(table)
