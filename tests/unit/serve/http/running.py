"""A server that really listens, in a thread with an event loop of its own. Knows nothing of the tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
import uvicorn
from prometheus_client import CollectorRegistry, Counter

from calotype.serve.auth import KeyCheck
from calotype.serve.http.app import create_app
from calotype.serve.http.server import listen, server_config
from calotype.serve.http.static_files import StaticFiles
from calotype.serve.settings import ServeSettings
from calotype.serve.system_info.system_info import SystemInfo
from calotype.serve.workflow.service import WorkflowService
from tests.unit.serve.http.fake_service import StandIn

Value = TypeVar("Value")


class Running:
    """A server, the service behind it, and a client of it."""

    def __init__(
        self, service: StandIn, url: str, loop: asyncio.AbstractEventLoop, client: httpx.Client
    ) -> None:
        self.service = service
        self.url = url
        self.client = client
        self._loop = loop

    def await_(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """The result of a coroutine of the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=20)

    def call(self, function: Callable[[], Value]) -> Value:
        """The result of a function in the server's loop."""

        async def called() -> Value:
            return function()

        return self.await_(called())

    def ended(self, job_id: str) -> str:
        """The state in which a job ends."""
        return self.await_(self.service.wait(job_id)).state


@contextmanager
def running(
    *,
    keys: KeyCheck | None = None,
    service: StandIn | None = None,
    workflows: WorkflowService | None = None,
    surroundings: SystemInfo | None = None,
    page: StaticFiles | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """A server on a free port of the loopback."""
    service = service or StandIn()
    registry = CollectorRegistry()
    Counter("stand_in", "Something to read.", registry=registry).inc()
    chosen = ServeSettings(**settings)
    app = create_app(
        service,
        keys=keys,
        registry=registry,
        settings=chosen,
        workflows=workflows,
        surroundings=surroundings,
        page=page,
    )
    config = server_config(app, chosen)
    server = uvicorn.Server(config)
    listener = listen(chosen)
    loops: list[asyncio.AbstractEventLoop] = []
    started = threading.Event()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        asyncio.get_running_loop().call_soon(started.set)
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(timeout=20)
    scheme = "https" if chosen.tls_key else "http"
    url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=20) as client:
            yield Running(service, url, loops[0], client)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(timeout=20)
        listener.close()
