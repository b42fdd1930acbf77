"""Implements grpc.health.v1 as the deployment's readiness."""

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
    """SERVING while the deployment accepts jobs, NOT_SERVING while it drains or has no worker.

    grpcio's own servicer writes under a lock, so one watcher that does not read would block all others.
    """

    def __init__(self, service: Service, names: tuple[str, ...]) -> None:
        self._service, self._names = service, names
        self._stopping = asyncio.Event()

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:
        """Return the current status."""
        if request.service not in self._names:
            known = [name for name in self._names if name]
            raise NotFoundError(
                f"no service {request.service[:80]!r}; {did_you_mean(request.service[:80], known)}"
            )
        return _States(status=self._state(request.service))

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yield the current status, then each change, until the server stops."""
        sent = None
        while True:
            current = self._state(request.service)
            if current != sent:
                sent = current
                yield _States(status=current)
            if self._stopping.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._stopping.wait()

    def end(self) -> None:
        """Report NOT_SERVING to all watchers and end their streams."""
        self._stopping.set()

    def _state(self, name: str) -> health_pb2.HealthCheckResponse.ServingStatus:
        if name not in self._names:
            return _States.SERVICE_UNKNOWN
        status = self._service.status()
        ready = status.ready and not status.draining and not self._stopping.is_set()
        return _States.SERVING if ready else _States.NOT_SERVING
