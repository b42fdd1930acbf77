"""However many connections some clients open, others are served."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from calotype.serve.http.static_files import StaticFiles
from tests.unit.serve.http.fake_service import StandInKeys
from tests.unit.serve.http.running import Running, running

HALF_HEAD = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
ASKING = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
FEW = 1
ROOM_OF_FEW = FEW + 8
"""Connections of a server with so few requests at a time."""


def opened(server: Running, address: str, said: bytes = b"") -> socket.socket:
    """A connection of a client that has this address."""
    place = urlsplit(server.url)
    found = socket.create_connection((place.hostname, place.port), timeout=20, source_address=(address, 0))
    found.sendall(said)
    return found


def answer(connection: socket.socket) -> tuple[int, Any]:
    """The status and the values of the next answer on a connection."""
    response = HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())


def fetched(server: Running, address: str, path: str, key: str = "") -> tuple[int, Any]:
    """The answer to a new client."""
    place = urlsplit(server.url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=20, source_address=(address, 0))
    try:
        connection.request("GET", path, headers={"X-API-Key": key} if key else {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@contextmanager
def held(server: Running, prompts: list[str], address: str, key: str = "") -> Iterator[None]:
    """Requests of one client that wait for their jobs meanwhile."""
    headers = {"Content-Type": "application/json", **({"X-API-Key": key} if key else {})}
    place, jobs = urlsplit(server.url), []
    with ExitStack() as connections:
        for prompt in prompts:
            connection = HTTPConnection(
                str(place.hostname), place.port, timeout=20, source_address=(address, 0)
            )
            connections.callback(connection.close)
            body = json.dumps({"request": {"prompt": prompt}})
            connection.request("POST", "/v1/jobs?wait=true", body, headers)
            jobs.append(server.await_(server.service.holding(prompt)))
        yield
        for job in jobs:
            server.await_(server.service.cancel(job.id))


@pytest.mark.parametrize("said", [b"", HALF_HEAD, ASKING], ids=["silent", "half a head", "kept alive"])
def test_a_thousand_connections_of_one_client_keep_no_client_out(said: bytes) -> None:
    with running(keys=StandInKeys()) as server, ExitStack() as clients:
        other = clients.enter_context(opened(server, "127.0.0.1", ASKING))
        assert answer(other) == (200, {"alive": True})
        many = []
        for count in (1000, 300):
            many += [clients.enter_context(opened(server, "127.0.0.9", said)) for _ in range(count)]
            # When it answers this, it has read what the others said before.
            assert fetched(server, "127.0.0.9", "/healthz") == (200, {"alive": True})
        for address in ("127.0.0.9", "127.0.0.2"):
            assert fetched(server, address, "/healthz") == (200, {"alive": True})
            assert fetched(server, address, "/readyz")[0] == 200
        assert fetched(server, "127.0.0.2", "/v1/jobs", "alice-key")[0] == 200
        other.sendall(ASKING)
        assert answer(other) == (200, {"alive": True}), "a client with few connections keeps them"
        if said == ASKING:
            assert answer(many[0]) == (200, {"alive": True})
            assert many[0].recv(1) == b"", "it was idle, so it may open another"
        else:
            status, values = answer(many[0])
            assert (status, values["error"]["code"]) == (503, "unavailable")
            assert "the limit is 1100; this is the oldest" in values["error"]["message"]
            assert values["error"]["request_id"]
            assert many[0].recv(1) == b""


def test_clients_that_do_not_read_the_page_keep_no_client_out(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").touch()
    (tmp_path / "assets" / "large.js").write_bytes(bytes(20_000_000))
    said = ASKING.replace(b"/healthz", b"/assets/large.js")
    with (
        running(keys=StandInKeys(), page=StaticFiles(tmp_path), most_connections=FEW) as server,
        ExitStack() as clients,
    ):
        for _ in range(ROOM_OF_FEW):
            client = clients.enter_context(opened(server, "127.0.0.9", said))
            assert client.recv(12) == b"HTTP/1.1 200"
        for _ in range(ROOM_OF_FEW):
            assert fetched(server, "127.0.0.2", "/healthz")[0] == 200
        assert fetched(server, "127.0.0.2", "/v1/jobs", "alice-key")[0] == 200


@pytest.mark.parametrize("before", [b"", ASKING], ids=["at first", "after a request"])
def test_half_a_head_is_not_waited_for(before: bytes) -> None:
    with running(head_timeout_s=0.1) as hasty, opened(hasty, "127.0.0.1", before) as slow:
        if before:
            assert answer(slow) == (200, {"alive": True})
        slow.sendall(HALF_HEAD)
        status, values = answer(slow)
        assert (status, values["error"]["code"]) == (408, "too_slow")
        assert "the request head was not complete after 0.1 seconds" in values["error"]["message"]
        assert slow.recv(1) == b""


def test_a_key_leaves_places_for_other_keys_and_for_health() -> None:
    with (
        running(keys=StandInKeys(), most_connections=4) as server,
        held(server, ["hold one", "hold two"], "127.0.0.1", "alice-key"),
    ):
        status, values = fetched(server, "127.0.0.2", "/v1/jobs", "alice-key")
        assert (status, values["error"]["code"]) == (503, "unavailable")
        assert "'alice' has 2 requests open and 2 of 4 slots are free" in values["error"]["message"]
        with held(server, ["hold three"], "127.0.0.1", "bob-key"):
            assert fetched(server, "127.0.0.1", "/v1/jobs", "root-key")[0] == 200
            assert fetched(server, "127.0.0.1", "/healthz")[0] == 200
            assert fetched(server, "127.0.0.1", "/v1/jobs")[0] == 401, "a client without a key takes none"
    with running(keys=StandInKeys(), most_connections=1) as server:
        for _ in range(3):
            assert fetched(server, "127.0.0.1", "/v1/jobs", "alice-key")[0] == 200, "a place is free again"


def test_without_keys_an_address_leaves_places_for_others() -> None:
    with (
        running(most_connections=4) as server,
        held(server, ["hold one", "hold two"], "127.0.0.9"),
    ):
        status, values = fetched(server, "127.0.0.9", "/v1/jobs")
        assert status == 503
        assert "127.0.0.9 has 2 requests open" in values["error"]["message"]
        assert fetched(server, "127.0.0.9", "/healthz")[0] == 200
        assert fetched(server, "127.0.0.2", "/v1/jobs")[0] == 200
