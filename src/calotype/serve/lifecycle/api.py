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
    """Start a persistent deployment; returns a client of it once it is ready.

    `settings` are fields of DeploymentConfig: preset, devices, precision, reached, …
    """
    models = tuple(resolvable_names(name) for name in (model, *more))
    daemon.deploy(DeploymentConfig.parse({"name": name, "models": models, **settings}))
    for notice in deployment_dir(name).notices():
        _log.warning("%s: %s", name, notice)
    return client(name)


def update(name: str, **settings: Any) -> None:
    """Replace a running deployment's replicas one by one; returns when it is done.

    `settings` are fields of DeploymentConfig; omitted fields, those of `cluster` included, do not change.
    """
    directory, running = running_deployment(name)
    plan = directory.plan().model_dump()
    cluster = plan["cluster"]
    if "cluster" in settings and cluster is not None:
        size = {**cluster["replicas"], **settings["cluster"].get("replicas", {})}
        settings["cluster"] = {**cluster, **settings["cluster"], "replicas": size}
    rolling_update.update(directory, running, DeploymentConfig.parse({**plan, **settings}))


def undeploy(name: str, *, at_once: bool = False, purge: bool = False) -> None:
    """Stop a deployment; with `purge`, delete its queue, history and images too."""
    daemon.undeploy(known_deployment(name), at_once=at_once, purge=purge)
