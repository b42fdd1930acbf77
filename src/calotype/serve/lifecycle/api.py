"""Deployments from Python code: `calotype.deploy` and `calotype.undeploy`."""

from __future__ import annotations

import logging
from typing import Any

from calotype.serve.client import Client, client
from calotype.serve.lifecycle import daemon, rolling_update
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.registry import deployment_dir, known_deployment, running_deployment
from calotype.serve.model_names import resolvable_names

_log = logging.getLogger(__name__)


def deploy(model: str = "emoji", *more: str, name: str, **settings: Any) -> Client:
    """Start a persistent deployment and answer, once it is ready, with a client of it.

    `settings` are the fields of DeploymentPlan: preset, devices, precision, reached, …
    """
    models = tuple(resolvable_names(each) for each in (model, *more))
    daemon.deploy(DeploymentConfig.parse({"name": name, "models": models, **settings}))
    for notice in deployment_dir(name).notices():
        _log.warning("%s: %s", name, notice)
    return client(name)


def update(name: str, **settings: Any) -> None:
    """Replace a running deployment's replicas one by one; returns when it is done.

    `settings` are fields of DeploymentPlan; what is not said, of `cluster` too, stays as it is.
    """
    place, running = running_deployment(name)
    plan = place.plan().model_dump()
    cluster = plan["cluster"]
    if "cluster" in settings and cluster is not None:
        size = {**cluster["replicas"], **settings["cluster"].get("replicas", {})}
        settings["cluster"] = {**cluster, **settings["cluster"], "replicas": size}
    rolling_update.update(place, running, DeploymentConfig.parse({**plan, **settings}))


def undeploy(name: str, *, at_once: bool = False, purge: bool = False) -> None:
    """Stop a deployment; with `purge`, forget its queue, history and pictures too."""
    daemon.undeploy(known_deployment(name), at_once=at_once, purge=purge)
