"""Options of deployments in a Ray cluster, and their fields of a DeploymentConfig."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from calotype.cli.serve_options import given_options
from calotype.core.errors import Problem, RequestError

_PANEL = "Replicas in a Ray cluster (--engine ray)"

Engine = Annotated[
    str | None,
    typer.Option(help="calotype; ray for replicas in a Ray cluster; nothing for a fake engine in tests."),
]


@dataclass(frozen=True)
class ReplicaOptions:
    """Number of replicas and resources of each."""

    replicas: Annotated[
        int | None, typer.Option(help="Fixed number of replicas.", rich_help_panel=_PANEL)
    ] = None
    min_replicas: Annotated[
        int | None, typer.Option(help="Minimum number of replicas when autoscaling.", rich_help_panel=_PANEL)
    ] = None
    max_replicas: Annotated[
        int | None, typer.Option(help="Maximum number of replicas when autoscaling.", rich_help_panel=_PANEL)
    ] = None
    jobs_per_replica: Annotated[
        int | None,
        typer.Option(
            help="Queued or running jobs per replica to scale for. Default: a full batch.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    gpus_per_replica: Annotated[
        float | None,
        typer.Option(help="GPUs per replica; 0.5 lets two replicas share one.", rich_help_panel=_PANEL),
    ] = None
    cpus_per_replica: Annotated[
        float | None, typer.Option(help="CPU cores per replica.", rich_help_panel=_PANEL)
    ] = None
    replica_resource: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=AMOUNT",
            help="Custom Ray resource that each replica takes; repeatable.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def cluster(self) -> dict[str, Any]:
        """The config's `cluster` section, with the given options only."""
        least, most = self.min_replicas, self.max_replicas
        if self.replicas is not None and (least is not None or most is not None):
            rule = "excludes --min-replicas and --max-replicas; give a fixed number or a range"
            raise RequestError([Problem("replicas", rule, self.replicas)])
        size = {
            "least": self.replicas if least is None else least,
            "most": self.replicas if most is None else most,
            "jobs_each": self.jobs_per_replica,
        }
        resources = self.replica_resource
        values = {
            "replicas": given_options(size) or None,
            "gpus_per_replica": self.gpus_per_replica,
            "cpus_per_replica": self.cpus_per_replica,
            "resources": None if resources is None else dict(map(_resource, resources)),
        }
        return given_options(values)


@dataclass(frozen=True)
class RayOptions(ReplicaOptions):
    """The same plus the address of the cluster."""

    ray_address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the head. Default: the local cluster, started if there is none.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def cluster(self) -> dict[str, Any]:
        return given_options({"address": self.ray_address}) | super().cluster()


def chosen_engine(engine: str | None, ray: RayOptions) -> dict[str, Any]:
    """Config fields of --engine: `ray` runs workers in Ray, `ray:nothing` runs the fake engine there."""
    kind, _, inner = (engine or "").partition(":")
    cluster = ray.cluster()
    if kind == "ray":
        size = cluster.get("replicas", {})
        # Without a maximum, the minimum is the maximum too.
        size.setdefault("most", size.get("least", 1))
        return {"engine": inner or None, "cluster": cluster}
    if cluster:
        rule = f"{', '.join(cluster)} applies to replicas only; add --engine ray"
        raise RequestError([Problem("engine", rule, engine)])
    return {"engine": engine}


def _resource(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    try:
        return name, float(amount)
    except ValueError:
        rule = f"{text!r} should be NAME=AMOUNT, such as mig-2g.20gb=1"
        raise RequestError([Problem("replica-resource", rule, text)]) from None
