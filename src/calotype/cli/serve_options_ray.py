"""Options of deployments in a Ray cluster, and the part of a plan they make. Knows nothing of Ray."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from calotype.cli.serve_options import given_options
from calotype.core.errors import Problem, RequestError

_PANEL = "Replicas in a Ray cluster (--engine ray)"

Engine = Annotated[
    str | None, typer.Option(help="calotype; ray, for replicas in a cluster; nothing, to try all else.")
]


@dataclass(frozen=True)
class ReplicaOptions:
    """How many replicas, and what each takes."""

    replicas: Annotated[int | None, typer.Option(help="So many, always.", rich_help_panel=_PANEL)] = None
    min_replicas: Annotated[
        int | None, typer.Option(help="However short the queue.", rich_help_panel=_PANEL)
    ] = None
    max_replicas: Annotated[
        int | None, typer.Option(help="However long the queue.", rich_help_panel=_PANEL)
    ] = None
    jobs_per_replica: Annotated[
        int | None,
        typer.Option(help="Waiting or running. Default: a full batch.", rich_help_panel=_PANEL),
    ] = None
    gpus_per_replica: Annotated[
        float | None, typer.Option(help="0.5 lets two share one.", rich_help_panel=_PANEL)
    ] = None
    cpus_per_replica: Annotated[float | None, typer.Option(rich_help_panel=_PANEL)] = None
    replica_resource: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=AMOUNT", help="Of the cluster's own; may be given again.", rich_help_panel=_PANEL
        ),
    ] = None

    def cluster(self) -> dict[str, Any]:
        """As a plan has it, with what was said alone."""
        least, most = self.min_replicas, self.max_replicas
        if self.replicas is not None and (least is not None or most is not None):
            rule = "say either how many replicas there are, or between how many"
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
    """The same, and where they are."""

    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Head's HOST:PORT. Default: the cluster here, or one made.", rich_help_panel=_PANEL
        ),
    ] = None

    def cluster(self) -> dict[str, Any]:
        return given_options({"address": self.ray_address}) | super().cluster()


def chosen_engine(engine: str | None, ray: RayOptions) -> dict[str, Any]:
    """Fields of a plan: `ray` is where workers are, `ray:nothing` with an engine that does nothing there."""
    kind, _, inner = (engine or "").partition(":")
    cluster = ray.cluster()
    if kind == "ray":
        size = cluster.get("replicas", {})
        # The most that is not said is no fewer than the least.
        size.setdefault("most", size.get("least", 1))
        return {"engine": inner or None, "cluster": cluster}
    if cluster:
        rule = f"{', '.join(cluster)} is said of replicas, and there are none; add --engine ray"
        raise RequestError([Problem("engine", rule, engine)])
    return {"engine": engine}


def _resource(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    try:
        return name, float(amount)
    except ValueError:
        rule = f"{text!r} should be NAME=AMOUNT, such as mig-2g.20gb=1"
        raise RequestError([Problem("replica-resource", rule, text)]) from None
