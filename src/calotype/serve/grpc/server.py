"""The gRPC server: methods, health, reflection, and the door before them. Knows nothing of the queue."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from calotype.core.errors import Problem, RequestError
from calotype.serve.auth import Access, KeyCheck
from calotype.serve.decoding.decoder import ImageDecoder
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc.calotype_pb2_grpc import add_CalotypeServicer_to_server
from calotype.serve.grpc.health import Health
from calotype.serve.grpc.interceptor import AuthInterceptor, room_for_anybody
from calotype.serve.grpc.servicer import Servicer
from calotype.serve.service import Service
from calotype.serve.settings import ServeSettings

SERVICE = pb.DESCRIPTOR.services_by_name["Calotype"].full_name
SHORTEST_BETWEEN_PINGS_MS = 5_000
"""Of a client. They usually ping every 10 s or more; one that arrives late has the next near behind it."""
PING_EVERY_MS = 60_000
MAX_UNKNOWN_CALLS = 64
"""At a time, of clients that are not known yet or are being refused."""
UNHEARD_MS = 20_000
"""How long a client's machine may leave unconfirmed that anything reached it."""


@dataclass(frozen=True)
class Server:
    """What answers calls, and what it says of itself."""

    inner: grpc.aio.Server
    health: Health

    async def start(self) -> None:
        await self.inner.start()

    async def stop(self, grace: float | None) -> None:
        """Take no more calls and give others `grace` seconds to end; who watches its health is told to go."""
        self.health.end()
        await self.inner.stop(grace)


def create_server(
    service: Service, *, keys: KeyCheck | None, settings: ServeSettings, decoder: ImageDecoder | None = None
) -> Server:
    """A server before a service, for the running event loop; `listen` gives it its port.

    Without `keys` only this machine may ask, or it refuses to begin. `decoder`: shared with another
    interface, so that both together keep its limits.
    """
    access = Access(settings, keys)
    server = grpc.aio.server(
        interceptors=[AuthInterceptor(access, settings.body_timeout_s, settings.most_connections)],
        # The door counts calls by client; this leaves room for calls that it answers at once.
        maximum_concurrent_rpcs=settings.most_connections
        + room_for_anybody(settings.most_connections)
        + MAX_UNKNOWN_CALLS,
        options=[
            ("grpc.max_receive_message_length", settings.largest_body_bytes),
            # Pictures are as large as was asked for.
            ("grpc.max_send_message_length", -1),
            # Two servers on one port would share its calls.
            ("grpc.so_reuseport", 0),
            *_pings(),
        ],
    )
    add_CalotypeServicer_to_server(Servicer(service, decoder or ImageDecoder(settings)), server)
    own_health = Health(service, ("", SERVICE))
    health_pb2_grpc.add_HealthServicer_to_server(own_health, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return Server(server, own_health)


def _pings() -> list[tuple[str, int]]:
    """Both sides may ask whether the other is there while nothing is said; a client that is gone is left."""
    return [
        ("grpc.http2.min_ping_interval_without_data_ms", SHORTEST_BETWEEN_PINGS_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", PING_EVERY_MS),
        ("grpc.keepalive_timeout_ms", UNHEARD_MS),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def listen(server: Server, settings: ServeSettings) -> int:
    """Take the port, with TLS where there is a certificate; answers with the port."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port or 0}"
    try:
        if settings.tls_certificate is None or settings.tls_key is None:
            return server.inner.add_insecure_port(address)
        pair = (settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes())
        return server.inner.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        rule = f"{address} cannot be listened on; is it taken by another program? Choose another port"
        raise RequestError([Problem("grpc_port", rule, settings.grpc_port)]) from error
