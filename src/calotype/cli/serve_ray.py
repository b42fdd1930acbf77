"""Options of deployments in a Ray cluster, and the part of a plan they make. Knows nothing of Ray."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from calotype.core.errors import Problem, RequestError

_PANEL = "Replicas in a Ray cluster (--engine ray)"

Engine = Annotated[
    str | None, typer.Option(help="calotype; ray, for replicas in a cluster; nothing, to try all else.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="Head's HOST:PORT. Default: the cluster here, or one made.",
        rich_help_panel=_PANEL,
    ),
]
Replicas = Annotated[int | None, typer.Option("--replicas", help="So many, always.", rich_help_panel=_PANEL)]
Least = Annotated[
    int | None, typer.Option("--min-replicas", help="However short the queue.", rich_help_panel=_PANEL)
]
Most = Annotated[
    int | None, typer.Option("--max-replicas", help="However long the queue.", rich_help_panel=_PANEL)
]
JobsEach = Annotated[
    int | None,
    typer.Option(
        "--jobs-per-replica", help="Waiting or running. Default: a full batch.", rich_help_panel=_PANEL
    ),
]
Gpus = Annotated[
    float | None,
    typer.Option("--gpus-per-replica", help="0.5 lets two share one.", rich_help_panel=_PANEL),
]
Cpus = Annotated[float | None, typer.Option("--cpus-per-replica", rich_help_panel=_PANEL)]
Resources = Annotated[
    list[str] | None,
    typer.Option(
        "--replica-resource",
        metavar="NAME=AMOUNT",
        help="Of the cluster's own; may be given again.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Crowd:
    """What was said of replicas; None where nothing was."""

    address: str | None
    replicas: int | None
    least: int | None
    most: int | None
    jobs_each: int | None
    gpus: float | None
    cpus: float | None
    resources: list[str] | None

    def cluster(self) -> dict[str, Any]:
        """As a plan has it, with what was said alone."""
        if self.replicas is not None and (self.least is not None or self.most is not None):
            rule = "say either how many replicas there are, or between how many"
            raise RequestError([Problem("replicas", rule, self.replicas)])
        size = {
            "least": self.replicas if self.least is None else self.least,
            "most": self.replicas if self.most is None else self.most,
            "jobs_each": self.jobs_each,
        }
        values = {
            "address": self.address,
            "replicas": _said(size) or None,
            "gpus_per_replica": self.gpus,
            "cpus_per_replica": self.cpus,
            "resources": None if self.resources is None else dict(map(_resource, self.resources)),
        }
        return _said(values)


def chosen_engine(engine: str | None, crowd: Crowd) -> dict[str, Any]:
    """Fields of a plan: `ray` is where workers are, `ray:nothing` with an engine that does nothing there."""
    kind, _, inner = (engine or "").partition(":")
    cluster = crowd.cluster()
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


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
