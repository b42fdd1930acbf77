"""grpc.health.v1 as the deployment's readiness. Knows nothing of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from calotype.core.errors import NotFoundError, did_you_mean
from calotype.serve.service import Service

LOOK_EVERY_S = 1.0

_States = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """Serving while work is taken, not serving while it drains or has no worker.

    The library's own writes under a lock: one watcher that does not read would keep all others waiting.
    """

    def __init__(self, service: Service, names: tuple[str, ...]) -> None:
        self._service, self._names = service, names
        self._ending = asyncio.Event()

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:
        """As it is now."""
        if request.service not in self._names:
            known = [name for name in self._names if name]
            raise NotFoundError(
                f"no service {request.service[:80]!r}; {did_you_mean(request.service[:80], known)}"
            )
        return _States(status=self._state(request.service))

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """As it is now, then each change, up to the server's end."""
        told = None
        while True:
            now = self._state(request.service)
            if now != told:
                told = now
                yield _States(status=now)
            if self._ending.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._ending.wait()

    def end(self) -> None:
        """Nothing is served any more: whoever watches hears that, and nothing more."""
        self._ending.set()

    def _state(self, name: str) -> health_pb2.HealthCheckResponse.ServingStatus:
        if name not in self._names:
            return _States.SERVICE_UNKNOWN
        status = self._service.status()
        ready = status.ready and not status.draining and not self._ending.is_set()
        return _States.SERVING if ready else _States.NOT_SERVING
