"""Options that `calotype serve`, `deploy` and `update` share, and their fields of a DeploymentConfig."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from calotype.cli.common_options import ModelsFolderThere
from calotype.spec.constants import DEFAULT_PRESET

_REACH = "Network"


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """Drop options that were not given, so that the config applies its own defaults."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class ModelOptions:
    """Options of the engine."""

    preset: Annotated[
        str | None, typer.Option(help="Optimization preset; see `calotype engine presets`.")
    ] = None
    precision: Annotated[
        str | None, typer.Option(help="fp32, fp16 or bf16. Default: fp16 on a GPU, fp32 on a CPU.")
    ] = None
    max_rows: Annotated[
        int | None, typer.Option(help="Maximum rows of one UNet evaluation; a guided image takes two.")
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
    """Options of the workers and their limits."""

    preset: Annotated[str, typer.Option(help="Optimization preset; see `calotype engine presets`.")] = (
        DEFAULT_PRESET
    )
    device: Annotated[
        list[str] | None,
        typer.Option(help="cpu, cuda:N, GPU-…, MIG-… or all; repeatable, one worker per device."),
    ] = None
    drain: Annotated[
        float, typer.Option(help="Seconds for running jobs to finish when the deployment stops.")
    ] = 30.0
    hang_limit: Annotated[
        float, typer.Option(help="Seconds without a step after which a worker counts as hung.")
    ] = 600.0
    load_limit: Annotated[
        float, typer.Option(help="The same limit while a worker loads or compiles a model, or runs a node.")
    ] = 1800.0
    records: Annotated[
        list[Path] | None, typer.Option(help="Folder of benchmark records for the web page; repeatable.")
    ] = None
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting of docs/serving.md, for example queue.max_age_s=3600.",
        ),
    ] = None
    keys: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the keys.json of API keys. Default: the folder of the deployment.",
            rich_help_panel=_REACH,
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
    """Network options."""

    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; any but loopback requires an API key.", rich_help_panel=_REACH
        ),
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="HTTP port; 0 picks a free one.", rich_help_panel=_REACH)] = 0
    grpc_port: Annotated[int, typer.Option(help="gRPC port; 0 picks a free one.", rich_help_panel=_REACH)] = 0
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="TLS certificate, a PEM file; requires --tls-key.", rich_help_panel=_REACH),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(help="TLS private key, a PEM file.", rich_help_panel=_REACH)
    ] = None
    admin: Annotated[
        list[str] | None,
        typer.Option(help="Name of an API key that may load models; repeatable.", rich_help_panel=_REACH),
    ] = None
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Host name that requests may use for this server; repeatable.", rich_help_panel=_REACH
        ),
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
    """The same with the default port of ComfyUI, which its clients expect."""

    port: Annotated[int, typer.Option(help="HTTP port; 0 picks a free one.", rich_help_panel=_REACH)] = 8188
