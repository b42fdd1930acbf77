"""Several deployments that begin together: all of them, or none. Knows nothing of why there are several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import Endpoint, deployment_dir


def deploy_together(
    plans: Sequence[DeploymentConfig], tell: Callable[[str], None] = lambda _: None
) -> list[Endpoint]:
    """Start each and return when all are ready; if one cannot, those before it are stopped again."""
    for plan in plans:
        deployment_dir(plan.name).check_free()
    started: list[Endpoint] = []
    try:
        for plan in plans:
            tell(plan.name)
            started.append(deploy(plan, lambda text, name=plan.name: tell(f"{name}: {text}")))  # type: ignore[misc]
    # Ctrl-C too: what was asked for is all of them.
    except BaseException:
        for running in started:
            stop(running, at_once=True)
        raise
    return started
