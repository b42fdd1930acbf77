"""A gRPC server that really listens, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from calotype.serve.auth import KeyCheck
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc.calotype_pb2_grpc import CalotypeStub
from calotype.serve.grpc.server import create_server, listen
from calotype.serve.settings import ServeSettings
from tests.unit.serve.http.fake_service import StandIn

Value = TypeVar("Value")


class Running:
    """A server, the service behind it, and a stub of it."""

    def __init__(
        self, service: StandIn, port: int, loop: asyncio.AbstractEventLoop, channel: grpc.Channel
    ) -> None:
        self.service = service
        self.port = port
        self.channel = channel
        self.stub: Any = CalotypeStub(channel)
        self._loop = loop

    def await_(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """The result of a coroutine of the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=20)

    def ended(self, job_id: str) -> str:
        """The state in which a job ends."""
        return self.await_(self.service.wait(job_id)).state

    def good(self) -> None:
        """A good request is served."""
        made = self.stub.Generate(submission(), timeout=20)
        assert made.job.state == pb.JOB_STATE_DONE


def submission(prompt: str = "a red apple", **changes: Any) -> pb.Submission:
    """A job to hand in."""
    return pb.Submission(request=pb.GenerateRequest(prompt=prompt, **{"steps": 4, **changes}))


@contextmanager
def running(
    *, keys: KeyCheck | None = None, service: StandIn | None = None, **settings: Any
) -> Iterator[Running]:
    """A server on a free port of the loopback."""
    service = service or StandIn()
    chosen = ServeSettings(grpc_port=0, **settings)
    ready: list[tuple[int, asyncio.AbstractEventLoop]] = []
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        server = create_server(service, keys=keys, settings=chosen)
        port = listen(server, chosen)
        await server.start()
        ready.append((port, asyncio.get_running_loop()))
        started.set()
        await stop.wait()
        await server.stop(grace=None)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(timeout=20)
    port, loop = ready[0]
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Running(service, port, loop, channel)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=20)
