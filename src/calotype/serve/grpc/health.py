"""grpc.health.v1 as the deployment's readiness. Knows nothing of calls."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio

from calotype.serve.service import Service


class Health(aio.HealthServicer):
    """Serving while work is taken, not serving while it drains or has no worker."""

    def __init__(self, service: Service, names: tuple[str, ...]) -> None:
        super().__init__()
        self._service = service
        self._names = names

    async def Check(self, request: Any, context: Any) -> Any:
        """As it is now."""
        await self.refresh()
        return await super().Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:
        """As it is now, then each change that `refresh` is told of."""
        await self.refresh()
        await super().Watch(request, context)

    async def refresh(self) -> None:
        """Tell whoever watches."""
        status = self._service.status()
        ready = status.ready and not status.draining
        states = health_pb2.HealthCheckResponse
        for name in self._names:
            await self.set(name, states.SERVING if ready else states.NOT_SERVING)
