"""`calotype mig deploy`: one server a slice, as a process or as a container, and how fast each one is."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from calotype.cli.common_options import AsJson, ModelsFolder
from calotype.cli.mig_options import Driver, Yes

if TYPE_CHECKING:
    from calotype.mig.compose import Deployment, Served

_WORK, _CONTAINERS, _CHECK = "What is served", "Containers", "How they are checked"


def add_to(app: typer.Typer) -> None:
    """Put this verb beside the others."""
    app.command()(deploy)


def deploy(
    model: Annotated[str, typer.Argument(help="Catalogue name, file, folder or random:NAME.")] = "emoji",
    preset: Annotated[str, typer.Option(help="Optimisations.", rich_help_panel=_WORK)] = "fast",
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.", rich_help_panel=_WORK)] = None,
    engine: Annotated[
        str, typer.Option(help="calotype; or nothing, to try all else.", rich_help_panel=_WORK)
    ] = "calotype",
    models: ModelsFolder = None,
    host: Annotated[
        str, typer.Option(help="Address; anything but loopback needs --keys.", rich_help_panel=_WORK)
    ] = "127.0.0.1",
    first_port: Annotated[
        int, typer.Option(min=1, max=65000, help="Of the first slice; then upwards.", rich_help_panel=_WORK)
    ] = 8081,
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder of a keys.json that lets clients in.", rich_help_panel=_WORK),
    ] = None,
    containers: Annotated[
        bool,
        typer.Option("--containers", help="Containers instead of processes.", rich_help_panel=_CONTAINERS),
    ] = False,
    render: Annotated[
        bool,
        typer.Option("--render", help="Only write compose.yaml and run.sh.", rich_help_panel=_CONTAINERS),
    ] = False,
    image: Annotated[
        str, typer.Option(help="See docs/containers.md.", rich_help_panel=_CONTAINERS)
    ] = "calotype-serve:latest",
    inside: Annotated[
        str,
        typer.Option("--command", help="What runs in it, if not our server.", rich_help_panel=_CONTAINERS),
    ] = "",
    container_port: Annotated[int, typer.Option(min=1, max=65535, rich_help_panel=_CONTAINERS)] = 8188,
    health_path: Annotated[
        str, typer.Option(help="Answers 200 when the server is well.", rich_help_panel=_CONTAINERS)
    ] = "/readyz",
    folder: Annotated[
        str, typer.Option(help="On the host; a folder for each slice.", rich_help_panel=_CONTAINERS)
    ] = "/srv/calotype",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="For the two files.", rich_help_panel=_CONTAINERS)
    ] = Path(),
    pictures: Annotated[
        int, typer.Option(min=0, help="Timed in each slice; 0 asks for none.", rich_help_panel=_CHECK)
    ] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Of each picture.", rich_help_panel=_CHECK)] = 20,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds for a container to be ready.", rich_help_panel=_CHECK)
    ] = 600.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="CALOTYPE_API_KEY", help="To ask with.", rich_help_panel=_CHECK)
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Stop them all again.")] = False,
    yes: Yes = False,
    driver: Driver = "auto",
    as_json: AsJson = False,
) -> None:
    """One server a slice; then each is asked for pictures from outside, and its speed shown.

    Processes are deployments of their own (calotype deployments, logs, query). Containers are started by the
    script that --render writes, with --yes.
    """
    from calotype.mig.compose import KEYS, Deployment, served
    from calotype.mig.open_driver import open_driver

    serve = ["serve", model, "--host", "0.0.0.0", "--port", str(container_port), "--preset", preset]  # noqa: S104 - inside its container
    serve += [*(["--precision", precision] if precision else []), *(["--keys", KEYS] if keys else [])]
    asked = Deployment(
        image=image,
        command=tuple(shlex.split(inside)) or tuple(serve),
        first_port=first_port,
        container_port=container_port,
        health_path=health_path,
        folder=folder,
        keys=str(keys.resolve()) if keys else None,
    )
    slices = served(open_driver(driver).read(), asked)
    if remove:
        _stop(slices, containers)
        return
    if render or containers:
        script = _written(slices, asked, out, as_json)
        if render or not yes:
            if not render:
                typer.echo("nothing was started; --yes does it", err=as_json)
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
    """How each server is asked."""

    host: str
    api_key: str | None
    pictures: int
    steps: int
    patience_s: float

    def of(self, each: "Served") -> float:
        """Seconds for a picture in a slice: the middle one, after a first that nobody counts."""
        from calotype.serve.probe import HttpProbe

        outside = HttpProbe(f"http://{self.host}:{each.port}", self.api_key)
        if self.patience_s:
            outside.wait_ready(self.patience_s)
        ask = {"steps": self.steps, "seed": 0}
        outside.time_image("a red apple", **ask)
        return median(outside.time_image("a red apple", **ask) for _ in range(self.pictures))


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


def _written(slices: "Sequence[Served]", asked: "Deployment", out: Path, aside: bool) -> Path:
    """The two files, and what else a person has to do; `aside` where the answer is a program's."""
    from calotype.core.paths import atomic_write
    from calotype.mig import compose as rendering

    script = out / "run.sh"
    for path, text in (
        (out / "compose.yaml", rendering.compose_file(slices, asked)),
        (script, rendering.run_script(slices, asked)),
    ):
        with atomic_write(path, "w") as file:
            file.write(text)
        typer.echo(f"wrote {path}", err=aside)
    for each in slices:
        typer.echo(f"{each.name}: {each.profile} {each.uuid} on port {each.port}", err=aside)
    typer.echo("\n".join(["then, once:", rendering.cdi_line(), *rendering.firewall_lines(slices)]), err=aside)
    return script


def _started(script: Path) -> None:
    """Run the script, once container engines know the slices by name."""
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
        raise NotFoundError(f"there is no {words[0]} here to run: {shlex.join(words)}") from None
    if done.returncode:
        said = done.stderr.strip()[-500:]
        raise CalotypeError(f"{shlex.join(words)} ended with {done.returncode}: {said}")


def _stop(slices: "Sequence[Served]", containers: bool) -> None:
    from calotype.serve.lifecycle.daemon import stop
    from calotype.serve.lifecycle.registry import deployment_dir

    for each in slices:
        if containers:
            _run(["docker", "rm", "--force", each.name])
        elif running := deployment_dir(each.name).running():
            stop(running, at_once=False)
        else:
            typer.echo(f"{each.name} does not run")
            continue
        typer.echo(f"stopped {each.name}")


def _outside(host: str) -> str:
    """The address by which other machines would ask, where a server listens on all of them."""
    import socket

    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks which way packets would go.
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
    table = Table("slice", "profile", "port", "s a picture", "pictures/s", "of the fastest", box=None)
    fastest = min((took for took in speeds if took is not None), default=0.0)
    for each, took in zip(slices, speeds, strict=True):
        told = ("", "", "") if took is None else (f"{took:.3f}", f"{1 / took:.2f}", f"{fastest / took:.0%}")
        table.add_row(each.name, each.profile, str(each.port), *told)
    console().print(table)
