"""The workers that a plan means: processes of this machine, or replicas in a Ray cluster. Knows no jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from calotype.core.extras import MissingExtraError
from calotype.core.hardware import GpuSource
from calotype.serve.deployment.crew import replica_name
from calotype.serve.deployment.workers import StartWorker
from calotype.serve.lifecycle.devices import worker_places
from calotype.serve.lifecycle.plan import DeploymentPlan
from calotype.serve.worker.options import WorkerOptions
from calotype.serve.worker.start import start_worker


@asynccontextmanager
async def workers_of(plan: DeploymentPlan, gpus: GpuSource) -> AsyncIterator[dict[str, StartWorker]]:
    """By a name for people. Replicas are of a cluster that this process leaves in the end."""
    if plan.cluster is None:
        yield {
            name: partial(start_worker, options_of(plan, device), environment=environment)
            for name, (device, environment) in worker_places(plan.devices, gpus).items()
        }
        return
    try:
        from calotype.serve.cluster import connecting  # noqa: PLC0415 - ray, only where it is wanted
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "cluster", "engine ray") from None
    try:
        await connecting.join(plan.cluster)
        start = replica_starter(plan)
        yield {replica_name(number + 1): start for number in range(plan.cluster.replicas.least)}
    finally:
        await asyncio.to_thread(connecting.leave)


def replica_starter(plan: DeploymentPlan) -> StartWorker:
    """Of a plan for a cluster that this process has joined."""
    from calotype.serve.cluster.connecting import starter  # noqa: PLC0415 - ray, only where it is wanted

    assert plan.cluster is not None
    (device,) = plan.devices
    return starter(plan.name, plan.cluster, options_of(plan, None if device == "auto" else device))


def options_of(plan: DeploymentPlan, device: str | None) -> WorkerOptions:
    return WorkerOptions(
        models=plan.models,
        device=device,
        preset=plan.preset,
        precision=plan.precision,
        memory_bytes=plan.memory_bytes,
        models_folder=plan.models_folder,
        max_rows=plan.max_rows,
        warm=True,
        engine=plan.engine,
    )
