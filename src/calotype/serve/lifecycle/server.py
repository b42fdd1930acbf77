"""The server process: connects queue, workers and interfaces, from the first port to the last job.

It binds ports before it loads models, so that a taken port fails at once. On SIGTERM or Ctrl-C it drains: it
accepts no new jobs, running jobs get the plan's time to end, and the rest waits for the next start. A second
signal stops at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from calotype.core.errors import CalotypeError, NotFoundError, Problem, RequestError, did_you_mean
from calotype.core.hardware import GpuSource
from calotype.core.nvml import NvmlGpus
from calotype.core.process import process_start_time
from calotype.serve.api_keys import ApiKeys, server_keys
from calotype.serve.grpc import server as grpc_server
from calotype.serve.http.app import create_app
from calotype.serve.http.server import listen, server_config
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.open_files_limit import raise_open_files_limit
from calotype.serve.lifecycle.readiness_notifier import ReadinessNotifier
from calotype.serve.lifecycle.registry import DeploymentDir, Endpoint
from calotype.serve.lifecycle.rolling_update import apply_update
from calotype.serve.lifecycle.workers import replica_starter, workers_of
from calotype.serve.metrics import Metrics
from calotype.serve.queue.queue import JobQueue
from calotype.serve.scheduler.deployment import Deployment
from calotype.serve.scheduler.settings import DeploymentSettings
from calotype.serve.scheduler.worker_protocol import StartWorker
from calotype.serve.service import Status, UnavailableError
from calotype.serve.settings import ServeSettings
from calotype.serve.system_info.benchmark_records import Records
from calotype.serve.system_info.gpu_memory_collector import GpuMemory
from calotype.serve.system_info.system_info import SystemInfo
from calotype.serve.workflow.admission import WorkflowAdmission
from calotype.serve.workflow.catalogue import WorkflowCatalogue
from calotype.serve.workflow.service_impl import DeploymentWorkflowService
from calotype.workflow.registry import load_registry

_log = logging.getLogger(__name__)
_POLL_INTERVAL_S = 0.1
_LAST_RESPONSES_S = 3.0
"""How long clients may take to read their responses when all jobs have ended."""


class StartError(CalotypeError):
    """None of the deployment's workers could be started."""


class _Http(uvicorn.Server):
    """Disables uvicorn's signal handling: the deployment drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class _Stopping:
    """Stop requests: the first signal asks for a drain, the second for an immediate stop."""

    requested: asyncio.Event
    at_once: asyncio.Event

    def __call__(self) -> None:
        (self.at_once if self.requested.is_set() else self.requested).set()


async def serve(
    plan: DeploymentConfig,
    directory: DeploymentDir,
    notifier: ReadinessNotifier,
    gpus: GpuSource | None = None,
) -> None:
    """Serve until a signal stops it."""
    stopping = _Stopping(asyncio.Event(), asyncio.Event())
    _on_signals(stopping)
    raise_open_files_limit(plan.reached)
    keys = server_keys(plan.name, directory.folder, plan.keys_folder)
    if not plan.reached.loopback_only and not keys.all():
        rule = (
            f"{plan.reached.host!r} can be reached from other machines, and {plan.name!r} has no API key"
            f"{f' in {plan.keys_folder}' if plan.keys_folder else ''}; "
            f"make one with `calotype keys create NAME --deployment {plan.name}`, or listen on 127.0.0.1"
        )
        raise RequestError([Problem("host", rule, plan.reached.host)])
    with contextlib.closing(listen(plan.reached)) as http_socket:
        async with workers_of(plan, gpus or NvmlGpus()) as workers:
            # Ray has installed its own handlers, which fill the log with addresses.
            _on_signals(stopping)
            await _open(plan, directory, keys, workers, http_socket, notifier, stopping, gpus or NvmlGpus())


def _on_signals(stopping: _Stopping) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping)


async def _open(
    plan: DeploymentConfig,
    directory: DeploymentDir,
    keys: ApiKeys,
    workers: Mapping[str, StartWorker],
    http_socket: socket.socket,
    notifier: ReadinessNotifier,
    stopping: _Stopping,
    gpus: GpuSource,
) -> None:
    queue = JobQueue(directory.queue, plan.queue)
    # A shared list: a rolling update changes it in place.
    model_names = list(plan.model_names)
    deployment = Deployment(
        DeploymentSettings(
            name=plan.name,
            models=plan.model_names,
            limits=plan.requests,
            drain_s=plan.drain_s,
            hang_s=plan.hang_s,
            load_s=plan.load_s,
        ),
        queue,
        workers,
        metrics=Metrics(),
        quotas=keys,
        find_model=partial(_find_model, plan.models_folder, model_names),
        size=plan.cluster.replicas if plan.cluster else None,
    )
    deployment.metrics.registry.register(GpuMemory(gpus))
    app = create_app(
        deployment,
        keys=keys,
        registry=deployment.metrics.registry,
        settings=plan.reached,
        workflows=DeploymentWorkflowService(deployment, queue, _workflow_admission(plan, model_names)),
        surroundings=_system_info(plan, model_names, directory, gpus),
    )
    try:
        with _rolling_updates(plan, directory, deployment, model_names):
            await _serve(plan, directory, deployment, keys, app, http_socket, notifier, stopping)
    finally:
        # Continue if the disk refuses: clients see by the process id that the server has ended.
        with contextlib.suppress(UnavailableError):
            directory.forget_running()
        await deployment.close()


@contextlib.contextmanager
def _rolling_updates(
    plan: DeploymentConfig, directory: DeploymentDir, deployment: Deployment, model_names: list[str]
) -> Iterator[None]:
    """Apply rolling updates during the block, on SIGUSR1."""
    if plan.cluster is None:
        yield
        return

    async def change(new: DeploymentConfig) -> None:
        assert new.cluster is not None
        await deployment.update(new.model_names, replica_starter(new), new.cluster.replicas)
        model_names[:] = new.model_names

    async def apply_updates() -> None:
        while True:
            await requested.wait()
            requested.clear()
            await apply_update(directory, change)

    requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, requested.set)
    updates = asyncio.create_task(apply_updates())
    try:
        yield
    finally:
        updates.cancel()


async def _serve(
    plan: DeploymentConfig,
    directory: DeploymentDir,
    deployment: Deployment,
    keys: ApiKeys,
    app: FastAPI,
    http_socket: socket.socket,
    notifier: ReadinessNotifier,
    stopping: _Stopping,
) -> None:
    http = _Http(server_config(app, plan.reached))
    grpc_interface = grpc_server.create_server(
        deployment, keys=keys, settings=plan.reached, decoder=app.state.reach.decoder
    )
    wants_grpc = plan.reached.grpc_port is not None
    grpc_port = grpc_server.listen(grpc_interface, plan.reached) if wants_grpc else None
    await deployment.start()
    if wants_grpc:
        await grpc_interface.start()
    http_task = asyncio.create_task(http.serve(sockets=[http_socket]))
    directory.keep_running(_running(plan.reached, http_socket, grpc_port))
    try:
        await _until_ready(deployment.status, notifier, stopping.requested)
        await stopping.requested.wait()
        _log.info("draining: running jobs have %g s to end", plan.drain_s)
        notifier.notify("draining")
        await _first(deployment.drain(), stopping.at_once.wait())
    finally:
        await _shut_down_interfaces(http, http_task, grpc_interface)


async def _until_ready(
    status: Callable[[], Status], notifier: ReadinessNotifier, stopped: asyncio.Event
) -> None:
    """Send the progress of loading; raises StartError if no worker will ever be ready."""
    said: set[str] = set()
    while not stopped.is_set():
        now = status()
        if now.ready:
            notifier.notify("ready")
            return
        if all(worker.state == "given up" for worker in now.workers):
            why = "; ".join(f"{worker.name}: {worker.problem}" for worker in now.workers)
            raise StartError(f"no worker could be started: {why}")
        lines = {f"{worker.name}: {worker.loading or worker.state}" for worker in now.workers}
        if now.refusal is not None:
            lines.add(now.refusal)
        for line in sorted(lines - said):
            notifier.notify("loading", line)
        said |= lines
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _POLL_INTERVAL_S)


async def _shut_down_interfaces(
    http: _Http, http_task: asyncio.Task[None], grpc_interface: grpc_server.Server
) -> None:
    http.should_exit = True
    await grpc_interface.stop(_LAST_RESPONSES_S)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(http_task), _LAST_RESPONSES_S)
    http.force_exit = True
    await http_task
    for connection in list(http.server_state.connections):
        # Abort connections whose client does not read: their tasks would never notice the cancellation.
        connection.transport.abort()


async def _first(*waited: object) -> None:
    """Wait for the first of these and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waited]  # type: ignore[call-overload]  # all are coroutines
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for each in done:
        each.result()


def _find_model(folder: Path | None, model_names: Sequence[str], name: str) -> None:
    """Accept a model of the model folder or the embedded one; raises NotFoundError for others."""
    known = WorkflowCatalogue(folder, model_names, ()).files("checkpoints")
    stems = [str(Path(file).with_suffix("")) for file in known]
    if name not in known and stems.count(name) != 1:
        raise NotFoundError(f"no model {name[:80]!r} here; {did_you_mean(name[:80], known)}")


def _workflow_admission(plan: DeploymentConfig, model_names: Sequence[str]) -> WorkflowAdmission:
    registry = load_registry()
    for left_out in registry.left_out:
        _log.warning("nodes of %s are left out: %s", left_out.package, left_out.reason)
    return WorkflowAdmission(
        registry, models=model_names, models_folder=plan.models_folder, limits=plan.requests
    )


def _system_info(
    plan: DeploymentConfig, model_names: Sequence[str], directory: DeploymentDir, gpus: GpuSource
) -> SystemInfo:
    return SystemInfo(
        models=model_names,
        models_folder=plan.models_folder,
        limits=plan.requests,
        records=Records([directory.folder / "records", *plan.records]),
        folder=directory.folder,
        gpus=gpus,
    )


def _running(settings: ServeSettings, http_socket: socket.socket, grpc_port: int | None) -> Endpoint:
    # Clients that find it by name are on this machine: use loopback for an address that means "any".
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - compared with
    address = f"[{host}]" if ":" in host else host
    scheme = "https" if settings.tls_certificate else "http"
    started = process_start_time(os.getpid())
    assert started is not None
    return Endpoint(
        pid=os.getpid(),
        born=started,
        http=f"{scheme}://{address}:{http_socket.getsockname()[1]}",
        grpc=None if grpc_port is None else f"{address}:{grpc_port}",
    )
