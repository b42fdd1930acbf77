"""What `calotype serve`, `deploy` and `update` take alike, and the parts of a plan they make."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from calotype.cli.common_options import ModelsFolderThere
from calotype.spec.constants import DEFAULT_PRESET

_REACH = "How it is reached"


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """Without what was not said, which is the plan's to decide."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class ModelOptions:
    """How models are run."""

    preset: Annotated[str | None, typer.Option(help="Optimisations; see `calotype engine presets`.")] = None
    precision: Annotated[str | None, typer.Option(help="fp32, fp16 or bf16.")] = None
    max_rows: Annotated[
        int | None, typer.Option(help="Rows of one UNet evaluation, two a guided picture.")
    ] = None
    folder: ModelsFolderThere = None

    def as_plan(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "precision": self.precision,
            "max_rows": self.max_rows,
            "models_folder": self.folder and self.folder.resolve(),
        }


@dataclass(frozen=True)
class ServingOptions(ModelOptions):
    """What works, and how long it may take."""

    preset: Annotated[str, typer.Option(help="Optimisations; see `calotype engine presets`.")] = (
        DEFAULT_PRESET
    )
    device: Annotated[
        list[str] | None,
        typer.Option(help="cpu, cuda:N, GPU-…, MIG-… or all; may be given again, a worker each."),
    ] = None
    drain: Annotated[float, typer.Option(help="Seconds that running jobs have when it stops.")] = 30.0
    hang_limit: Annotated[
        float, typer.Option(help="Seconds that a worker may be silent between two steps.")
    ] = 600.0
    load_limit: Annotated[
        float, typer.Option(help="The same while it loads or compiles a model, or runs a node.")
    ] = 1800.0
    records: Annotated[
        list[Path] | None, typer.Option(help="Folder with measurements for the page; may be given again.")
    ] = None
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any limit of docs/serving.md, as queue.max_age_s=3600."
        ),
    ] = None
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a keys.json that lets clients in. Default: its own.", rich_help_panel=_REACH
        ),
    ] = None

    def as_plan(self) -> dict[str, Any]:
        return {
            **super().as_plan(),
            "devices": self.device or None,
            "drain_s": self.drain,
            "hang_s": self.hang_limit,
            "load_s": self.load_limit,
            "records": tuple(path.resolve() for path in self.records or ()) or None,
            "keys_folder": self.keys and self.keys.resolve(),
        }


@dataclass(frozen=True)
class ReachOptions:
    """How it is reached."""

    host: Annotated[
        str, typer.Option(help="Address; anything but loopback needs an API key.", rich_help_panel=_REACH)
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Of HTTP; 0 takes any free one.", rich_help_panel=_REACH)] = 0
    grpc_port: Annotated[int, typer.Option(help="0 takes any free one.", rich_help_panel=_REACH)] = 0
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file; with --tls-key.", rich_help_panel=_REACH)
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="PEM file.", rich_help_panel=_REACH)] = None
    admin: Annotated[
        list[str] | None,
        typer.Option(help="An API key's name that may load models.", rich_help_panel=_REACH),
    ] = None
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A name of this server; may be given again.", rich_help_panel=_REACH),
    ] = None

    def as_plan(self) -> dict[str, Any]:
        return given_options(
            {
                "host": self.host,
                "http_port": self.port,
                "grpc_port": self.grpc_port,
                "tls_certificate": self.tls_certificate and self.tls_certificate.resolve(),
                "tls_key": self.tls_key and self.tls_key.resolve(),
                "admins": self.admin or None,
                "allowed_hosts": self.allowed_host,
            }
        )


@dataclass(frozen=True)
class ForegroundOptions(ReachOptions):
    """The same, on the port that ComfyUI's clients know."""

    port: Annotated[int, typer.Option(help="Of HTTP; 0 takes any free one.", rich_help_panel=_REACH)] = 8188
