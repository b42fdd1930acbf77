"""Opens the HTTP port and configures uvicorn."""

from __future__ import annotations

import socket
import ssl

import uvicorn
from fastapi import FastAPI

from calotype.core.errors import Problem, RequestError
from calotype.serve.http.connection_limits import Socket, connections
from calotype.serve.settings import ServeSettings

MAX_SAID_BYTES = 64 * 1024
"""Largest message from a client over a WebSocket."""
_IDLE_S = 30
"""Time that an idle connection stays open."""


def listen(settings: ServeSettings) -> socket.socket:
    """Bind the port for `uvicorn.Server.serve(sockets=[…])`; `getsockname` returns its number."""
    _check_certificate(settings)
    try:
        addresses = socket.getaddrinfo(
            settings.host, settings.http_port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        family, kind, protocol, _, address = addresses[0]
        # Pass the protocol: asyncio sets TCP_NODELAY only then, and small responses would wait for 40 ms.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _refused(settings, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(settings.most_connections)
    except OSError as error:
        listener.close()
        raise _refused(settings, error) from error
    return listener


def server_config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    """Return the configuration for `uvicorn.Server`; the caller handles logging and signals."""
    return uvicorn.Config(
        app,
        # h11 limits the size of headers itself.
        http=connections(settings),
        # Longer than clients keep connections: if the server closed first, it could cut off a request.
        timeout_keep_alive=_IDLE_S,
        ws=Socket,
        # WebSocket clients only listen; the server ignores what they send.
        ws_max_size=MAX_SAID_BYTES,
        ws_ping_interval=settings.ping_s,
        lifespan="off",
        # A client could forge its address in proxy headers.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        # At level info uvicorn logs every WebSocket's URL, with API keys in its query.
        log_level="warning",
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )


def _check_certificate(settings: ServeSettings) -> None:
    """Check the certificate now: both interfaces would fail later and with a vaguer message."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None or key is None:
        return
    for field, file in (("tls_certificate", certificate), ("tls_key", key)):
        try:
            file.read_bytes()
        except OSError as error:
            rule = f"{file} cannot be read: {error.strerror or error}; give a PEM file"
            raise RequestError([Problem(field, rule, str(file))]) from error
    try:
        # Pass a password, or OpenSSL would prompt for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        rule = f"{certificate} does not match the key {key}: {error.reason or error}"
        rule += "; both have to be PEM files of one pair, and the key must have no password"
        raise RequestError([Problem("tls_certificate", rule, str(certificate))]) from error


def _refused(settings: ServeSettings, error: OSError) -> RequestError:
    address = f"{settings.host}:{settings.http_port}"
    rule = f"cannot listen on {address}: {error.strerror or error}; choose another port or host"
    return RequestError([Problem("http_port", rule, settings.http_port)])
