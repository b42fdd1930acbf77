"""Creates the gRPC server: servicer, health, reflection and the auth interceptor."""

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
"""Shortest interval of client pings. Clients ping every 10 s or more; after a late ping it is shorter."""
PING_EVERY_MS = 60_000
MAX_UNKNOWN_CALLS = 64
"""Concurrent calls of clients that are being authenticated or rejected."""
UNHEARD_MS = 20_000
"""Time without acknowledgement from a client's machine before the server closes the connection."""


@dataclass(frozen=True)
class Server:
    """The gRPC server and its health service."""

    inner: grpc.aio.Server
    health: Health

    async def start(self) -> None:
        await self.inner.start()

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls, give others `grace` seconds to end, and end all health watches."""
        self.health.end()
        await self.inner.stop(grace)


def create_server(
    service: Service, *, keys: KeyCheck | None, settings: ServeSettings, decoder: ImageDecoder | None = None
) -> Server:
    """Create the server of a service in the running event loop; `listen` binds its port.

    Without `keys` it serves only this machine, and raises if the settings allow more. Pass the `decoder` of
    another interface to share its limits.
    """
    access = Access(settings, keys)
    server = grpc.aio.server(
        interceptors=[AuthInterceptor(access, settings.body_timeout_s, settings.most_connections)],
        # The interceptor limits calls per client; this leaves room for calls that it rejects at once.
        maximum_concurrent_rpcs=settings.most_connections
        + room_for_anybody(settings.most_connections)
        + MAX_UNKNOWN_CALLS,
        options=[
            ("grpc.max_receive_message_length", settings.largest_body_bytes),
            # The request determines the size of the images.
            ("grpc.max_send_message_length", -1),
            # With SO_REUSEPORT, two servers could share one port and its calls.
            ("grpc.so_reuseport", 0),
            *_pings(),
        ],
    )
    add_CalotypeServicer_to_server(Servicer(service, decoder or ImageDecoder(settings)), server)
    health_servicer = Health(service, ("", SERVICE))
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return Server(server, health_servicer)


def _pings() -> list[tuple[str, int]]:
    """Allow both sides to ping an idle connection; close it if the client is gone."""
    return [
        ("grpc.http2.min_ping_interval_without_data_ms", SHORTEST_BETWEEN_PINGS_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", PING_EVERY_MS),
        ("grpc.keepalive_timeout_ms", UNHEARD_MS),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def listen(server: Server, settings: ServeSettings) -> int:
    """Bind the port, with TLS if there is a certificate; return its number."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port or 0}"
    try:
        if settings.tls_certificate is None or settings.tls_key is None:
            return server.inner.add_insecure_port(address)
        pair = (settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes())
        return server.inner.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        rule = f"cannot listen on {address}; another program may use it; choose another port"
        raise RequestError([Problem("grpc_port", rule, settings.grpc_port)]) from error
