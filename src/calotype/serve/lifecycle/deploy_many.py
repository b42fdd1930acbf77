"""Starts several deployments together: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import Endpoint, deployment_dir


def deploy_together(
    plans: Sequence[DeploymentConfig], report: Callable[[str], None] = lambda _: None
) -> list[Endpoint]:
    """Start each and return when all are ready; if one fails, stop those before it."""
    for plan in plans:
        deployment_dir(plan.name).check_free()
    started: list[Endpoint] = []
    try:
        for plan in plans:
            report(plan.name)
            started.append(deploy(plan, lambda text, name=plan.name: report(f"{name}: {text}")))  # type: ignore[misc]
    # On Ctrl-C too: a part of the deployments is not wanted.
    except BaseException:
        for running in started:
            stop(running, at_once=True)
        raise
    return started
