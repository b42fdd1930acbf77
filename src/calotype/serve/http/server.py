"""How the application is listened for. Knows nothing of what it answers."""

from __future__ import annotations

import socket
import ssl

import uvicorn
from fastapi import FastAPI

from calotype.core.errors import Problem, RequestError
from calotype.serve.http.connection_limits import Socket, connections
from calotype.serve.settings import ServeSettings

MAX_SAID_BYTES = 64 * 1024
"""By a client, over a socket."""
_IDLE_S = 30
"""That a connection is kept without a request."""


def listen(settings: ServeSettings) -> socket.socket:
    """Take the port, for `uvicorn.Server.serve(sockets=[…])`; `getsockname` says which one it is."""
    _check_certificate(settings)
    try:
        places = socket.getaddrinfo(
            settings.host, settings.http_port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        family, kind, protocol, _, address = places[0]
        # With its protocol said: on other sockets asyncio leaves small answers waiting for 40 ms.
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
    """For `uvicorn.Server`; logging and signals stay with who runs it."""
    return uvicorn.Config(
        app,
        # h11 bounds the size of headers by itself.
        http=connections(settings),
        # Longer than clients keep theirs: who closes first meets the other's next request on its way.
        timeout_keep_alive=_IDLE_S,
        ws=Socket,
        # Clients of sockets listen; what they say is little and not heard.
        ws_max_size=MAX_SAID_BYTES,
        ws_ping_interval=settings.ping_s,
        lifespan="off",
        # What a client says of its own address is not believed.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        # Of every WebSocket it logs the address as information, with keys that are in its query.
        log_level="warning",
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )


def _check_certificate(settings: ServeSettings) -> None:
    """Both interfaces would say less of what is wrong with it, and later."""
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
        # With some password, as nobody is there to be asked for the right one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        rule = f"{certificate} does not go with the key {key}: {error.reason or error}"
        rule += "; both have to be PEM, of one pair, and the key without a password"
        raise RequestError([Problem("tls_certificate", rule, str(certificate))]) from error


def _refused(settings: ServeSettings, error: OSError) -> RequestError:
    place = f"{settings.host}:{settings.http_port}"
    rule = f"{place} cannot be listened on: {error.strerror or error}; choose another port or host"
    return RequestError([Problem("http_port", rule, settings.http_port)])
