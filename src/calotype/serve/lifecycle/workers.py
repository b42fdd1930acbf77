"""Creates the workers of a plan: processes of this machine, or replicas in a Ray cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.core.extras import MissingExtraError
from calotype.core.hardware import GpuSource
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.scheduler.replica_set import replica_name
from calotype.serve.scheduler.worker_protocol import StartWorker
from calotype.serve.worker.options import WorkerOptions
from calotype.serve.worker.process import start_worker

WorkerDevice = tuple[str | None, dict[str, str]]
"""A worker's device, and additions to its environment."""


def worker_devices(devices: Sequence[str], gpus: GpuSource) -> dict[str, WorkerDevice]:
    """Worker devices by display name, in order."""
    found: dict[str, WorkerDevice] = {}
    for device in devices:
        for name, device_options in _expand_device(device, gpus):
            if name in found:
                raise RequestError([Problem("devices", f"{name!r} is named twice; one worker each", name)])
            found[name] = device_options
    return found


def _expand_device(device: str, gpus: GpuSource) -> list[tuple[str, WorkerDevice]]:
    if device == "all":
        return _all_devices(gpus)
    if device == "auto":
        return [("worker", (None, {}))]
    if device == "cpu" or device.startswith("cuda"):
        return [(device, (device, {}))]
    if device.startswith(("GPU-", "MIG-")):
        return [(device, ("cuda", {"CUDA_VISIBLE_DEVICES": device}))]
    rule = f"{device!r} is not a device; use cpu, cuda:N, GPU-…, MIG-… or all"
    raise RequestError([Problem("devices", rule, device)])


def _all_devices(gpus: GpuSource) -> list[tuple[str, WorkerDevice]]:
    names: list[str] = []
    for gpu in gpus.survey().gpus:
        slices = [part.uuid for part in gpu.mig_devices if part.uuid]
        names += slices if gpu.mig and gpu.mig.current else [gpu.uuid] if gpu.uuid else []
    if not names:
        raise NotFoundError(
            "devices: all means every GPU and slice, and none was found; see `calotype doctor`"
        )
    return [(name, ("cuda", {"CUDA_VISIBLE_DEVICES": name})) for name in names]


@asynccontextmanager
async def workers_of(plan: DeploymentConfig, gpus: GpuSource) -> AsyncIterator[dict[str, StartWorker]]:
    """Worker starters by display name. For replicas, this process joins the cluster for the block."""
    if plan.cluster is None:
        yield {
            name: partial(start_worker, options_of(plan, device), environment=environment)
            for name, (device, environment) in worker_devices(plan.devices, gpus).items()
        }
        return
    try:
        from calotype.serve.ray import cluster  # noqa: PLC0415 - ray, only where it is wanted
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "cluster", "engine ray") from None
    try:
        await cluster.connect(plan.cluster)
        start = replica_starter(plan)
        yield {replica_name(number + 1): start for number in range(plan.cluster.replicas.least)}
    finally:
        await asyncio.to_thread(cluster.disconnect)


def replica_starter(plan: DeploymentConfig) -> StartWorker:
    """The starter of replicas, in a cluster that this process has joined."""
    from calotype.serve.ray.cluster import worker_starter  # noqa: PLC0415 - ray, only where it is wanted

    assert plan.cluster is not None
    (device,) = plan.devices
    return worker_starter(plan.name, plan.cluster, options_of(plan, None if device == "auto" else device))


def options_of(plan: DeploymentConfig, device: str | None) -> WorkerOptions:
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
