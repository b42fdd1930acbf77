"""The server process: queue, workers and interfaces put together, from the first port to the last job.

Ports are taken before models are loaded, so that a taken one is said at once. On SIGTERM or Ctrl-C it drains:
nothing new is accepted, what runs has the plan's time to end, the rest waits for the next start. A second
signal stops at once. Knows nothing of who started it.
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
_LOOK_EVERY_S = 0.1
_LAST_ANSWERS_S = 3.0
"""What clients have to read their answers in when all jobs have ended."""


class StartError(CalotypeError):
    """A deployment none of whose workers could be started."""


class _Http(uvicorn.Server):
    """Without uvicorn's own handling of signals: the deployment drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class _Stopping:
    """Set by the first signal; the second one makes haste."""

    asked: asyncio.Event
    at_once: asyncio.Event

    def __call__(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()


async def serve(
    plan: DeploymentConfig, place: DeploymentDir, news: ReadinessNotifier, gpus: GpuSource | None = None
) -> None:
    """Serve until a signal says otherwise."""
    stopping = _Stopping(asyncio.Event(), asyncio.Event())
    _on_signals(stopping)
    raise_open_files_limit(plan.reached)
    keys = server_keys(plan.name, place.folder, plan.keys_folder)
    if not plan.reached.loopback_only and not keys.all():
        rule = (
            f"{plan.reached.host!r} can be reached from other machines, and {plan.name!r} has no API key"
            f"{f' in {plan.keys_folder}' if plan.keys_folder else ''}; "
            f"make one with `calotype keys create NAME --deployment {plan.name}`, or listen on 127.0.0.1"
        )
        raise RequestError([Problem("host", rule, plan.reached.host)])
    with contextlib.closing(listen(plan.reached)) as http_socket:
        async with workers_of(plan, gpus or NvmlGpus()) as workers:
            # Ray has put a handler of its own in front, which fills the log with addresses.
            _on_signals(stopping)
            await _open(plan, place, keys, workers, http_socket, news, stopping, gpus or NvmlGpus())


def _on_signals(stopping: _Stopping) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping)


async def _open(
    plan: DeploymentConfig,
    place: DeploymentDir,
    keys: ApiKeys,
    workers: Mapping[str, StartWorker],
    http_socket: socket.socket,
    news: ReadinessNotifier,
    stopping: _Stopping,
    gpus: GpuSource,
) -> None:
    queue = JobQueue(place.queue, plan.queue)
    # The very list is shown and looked at, so that an update needs to change it alone.
    offered = list(plan.model_names)
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
        find_model=partial(_find_model, plan.models_folder, offered),
        size=plan.cluster.replicas if plan.cluster else None,
    )
    deployment.metrics.registry.register(GpuMemory(gpus))
    app = create_app(
        deployment,
        keys=keys,
        registry=deployment.metrics.registry,
        settings=plan.reached,
        workflows=DeploymentWorkflowService(deployment, queue, _workflow_admission(plan, offered)),
        surroundings=_surroundings(plan, offered, place, gpus),
    )
    try:
        with _updated(plan, place, deployment, offered):
            await _serve(plan, place, deployment, keys, app, http_socket, news, stopping)
    finally:
        # Whatever the disk says to this: who looks for a running server sees that it has gone.
        with contextlib.suppress(UnavailableError):
            place.forget_running()
        await deployment.close()


@contextlib.contextmanager
def _updated(
    plan: DeploymentConfig, place: DeploymentDir, deployment: Deployment, offered: list[str]
) -> Iterator[None]:
    """Meanwhile, replicas are replaced whenever that is asked for."""
    if plan.cluster is None:
        yield
        return

    async def change(new: DeploymentConfig) -> None:
        assert new.cluster is not None
        await deployment.update(new.model_names, replica_starter(new), new.cluster.replicas)
        offered[:] = new.model_names

    async def keep_updated() -> None:
        while True:
            await asked.wait()
            asked.clear()
            await apply_update(place, change)

    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked.set)
    keeping = asyncio.create_task(keep_updated())
    try:
        yield
    finally:
        keeping.cancel()


async def _serve(
    plan: DeploymentConfig,
    place: DeploymentDir,
    deployment: Deployment,
    keys: ApiKeys,
    app: FastAPI,
    http_socket: socket.socket,
    news: ReadinessNotifier,
    stopping: _Stopping,
) -> None:
    http = _Http(server_config(app, plan.reached))
    remote = grpc_server.create_server(
        deployment, keys=keys, settings=plan.reached, decoder=app.state.reach.decoder
    )
    wants_grpc = plan.reached.grpc_port is not None
    grpc_port = grpc_server.listen(remote, plan.reached) if wants_grpc else None
    await deployment.start()
    if wants_grpc:
        await remote.start()
    answering = asyncio.create_task(http.serve(sockets=[http_socket]))
    place.keep_running(_running(plan.reached, http_socket, grpc_port))
    try:
        await _until_ready(deployment.status, news, stopping.asked)
        await stopping.asked.wait()
        _log.info("draining: running jobs have %g s to end", plan.drain_s)
        news.notify("draining")
        await _first(deployment.drain(), stopping.at_once.wait())
    finally:
        await _last_answers(http, answering, remote)


async def _until_ready(status: Callable[[], Status], news: ReadinessNotifier, stopped: asyncio.Event) -> None:
    """Tell how loading goes; an error if no worker will ever be ready."""
    said: set[str] = set()
    while not stopped.is_set():
        now = status()
        if now.ready:
            news.notify("ready")
            return
        if all(worker.state == "given up" for worker in now.workers):
            why = "; ".join(f"{worker.name}: {worker.problem}" for worker in now.workers)
            raise StartError(f"no worker could be started: {why}")
        lines = {f"{worker.name}: {worker.loading or worker.state}" for worker in now.workers}
        if now.refusal is not None:
            lines.add(now.refusal)
        for line in sorted(lines - said):
            news.notify("loading", line)
        said |= lines
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _LOOK_EVERY_S)


async def _last_answers(http: _Http, answering: asyncio.Task[None], remote: grpc_server.Server) -> None:
    http.should_exit = True
    await remote.stop(_LAST_ANSWERS_S)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(answering), _LAST_ANSWERS_S)
    http.force_exit = True
    await answering
    for connection in list(http.server_state.connections):
        # An answer that nobody reads is not waited for: it would not hear that it is cancelled.
        connection.transport.abort()


async def _first(*waited: object) -> None:
    """Until one of them is done; the others are left."""
    tasks = [asyncio.ensure_future(each) for each in waited]  # type: ignore[call-overload]  # all are coroutines
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for each in done:
        each.result()


def _find_model(folder: Path | None, offered: Sequence[str], name: str) -> None:
    """What is not deployed may lie in the model folder, or be the embedded model."""
    known = WorkflowCatalogue(folder, offered, ()).files("checkpoints")
    stems = [str(Path(each).with_suffix("")) for each in known]
    if name not in known and stems.count(name) != 1:
        raise NotFoundError(f"no model {name[:80]!r} here; {did_you_mean(name[:80], known)}")


def _workflow_admission(plan: DeploymentConfig, offered: Sequence[str]) -> WorkflowAdmission:
    registry = load_registry()
    for left_out in registry.left_out:
        _log.warning("nodes of %s are left out: %s", left_out.package, left_out.reason)
    return WorkflowAdmission(registry, models=offered, models_folder=plan.models_folder, limits=plan.requests)


def _surroundings(
    plan: DeploymentConfig, offered: Sequence[str], place: DeploymentDir, gpus: GpuSource
) -> SystemInfo:
    return SystemInfo(
        models=offered,
        models_folder=plan.models_folder,
        limits=plan.requests,
        records=Records([place.folder / "records", *plan.records]),
        folder=place.folder,
        gpus=gpus,
    )


def _running(settings: ServeSettings, http_socket: socket.socket, grpc_port: int | None) -> Endpoint:
    # Whoever finds it by name is on this machine: an address that means "any" is reached on loopback.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - compared with
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if settings.tls_certificate else "http"
    started = process_start_time(os.getpid())
    assert started is not None
    return Endpoint(
        pid=os.getpid(),
        born=started,
        http=f"{scheme}://{shown}:{http_socket.getsockname()[1]}",
        grpc=None if grpc_port is None else f"{shown}:{grpc_port}",
    )
