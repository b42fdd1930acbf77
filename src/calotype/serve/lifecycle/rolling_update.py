"""A running deployment's workers replaced by those of another plan: how it is asked for, and what it answers.

Whoever asks leaves `update.json` in the deployment's folder and sends SIGUSR1; the server answers in
`updated.json`. The plan that it would start with again changes only when all is done. Knows no workers.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from calotype.core.errors import CalotypeError, Problem, RequestError
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
CHANGEABLE = (
    "models",
    "preset",
    "precision",
    "memory_bytes",
    "max_rows",
    "models_folder",
    "engine",
    "cluster",
)
"""Fields of a plan that are the workers' own business."""


class NotUpdatedError(CalotypeError):
    """An update that was not carried through; the message says why, and what serves now."""


class UpdateRequest(BaseModel):
    """An update that is wanted."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    id: str
    plan: DeploymentConfig


class UpdateResponse(BaseModel):
    """What became of an update."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    id: str
    problem: str | None


def update(place: DeploymentDir, running: Endpoint, plan: DeploymentConfig) -> None:
    """Have a running deployment replace its workers; returns when it has."""
    check_update(place.plan(), plan)
    asked = UpdateRequest(id=uuid4().hex, plan=plan)
    place.write("update.json", asked)
    os.kill(running.pid, signal.SIGUSR1)
    while (answer := place.read("updated.json", UpdateResponse)) is None or answer.id != asked.id:
        if not running.alive:
            raise NotUpdatedError(f"{place.name!r} ended before it was updated; {place.log} says why")
        time.sleep(LOOK_EVERY_S)
    if answer.problem is not None:
        raise NotUpdatedError(f"{place.name!r} was not updated: {answer.problem}")


def check_update(old: DeploymentConfig, new: DeploymentConfig) -> None:
    """Refuse what cannot change while it runs."""
    if old.cluster is None or new.cluster is None:
        rule = f"only replicas (--engine ray) are replaced one by one; `calotype undeploy {old.name}` first"
        raise RequestError([Problem("engine", rule, new.engine)])
    if new.cluster.address != old.cluster.address:
        rule = f"it runs in the cluster at {old.cluster.address}; `calotype undeploy {old.name}` first"
        raise RequestError([Problem("cluster.address", rule, new.cluster.address)])
    others = [name for name in DeploymentConfig.model_fields if name not in CHANGEABLE]
    different = [name for name in others if getattr(old, name) != getattr(new, name)]
    if different:
        rule = f"stays as it is while {old.name!r} runs; `calotype undeploy {old.name}` first"
        raise RequestError(Problem(name, rule) for name in different)


async def apply_update(place: DeploymentDir, change: Callable[[DeploymentConfig], Awaitable[None]]) -> None:
    """Do what was asked for, and answer."""
    asked = place.read("update.json", UpdateRequest)
    if asked is None:
        _log.error("no update: there is none in %s", place.folder)
        return
    problem: str | None = None
    try:
        check_update(place.plan(), asked.plan)
        await change(asked.plan)
        place.keep_plan(asked.plan)
    except CalotypeError as error:
        problem = str(error)
        _log.error("not updated: %s", problem)
    place.write("updated.json", UpdateResponse(id=asked.id, problem=problem))
