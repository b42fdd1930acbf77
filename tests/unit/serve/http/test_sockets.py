"""Sockets pass the same door as every other request."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import pytest
import websocket

from calotype.serve.workflow.service import WorkflowService
from tests.unit.serve.http.access_lines import access_lines
from tests.unit.serve.http.fake_service import StandInKeys
from tests.unit.serve.http.running import Running, running


class Counting:
    """As much of a `WorkflowService` as a socket asks for."""

    async def unended(self, *, client: str | None = None) -> int:  # noqa: ARG002
        return 3


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with running(
        keys=StandInKeys(), admins=("root",), workflows=cast("WorkflowService", Counting())
    ) as found:
        yield found


@contextmanager
def connected(
    server: Running, path: str = "/ws?clientId=me", **options: Any
) -> Iterator[websocket.WebSocket]:
    socket = websocket.create_connection(server.url.replace("http", "ws") + path, timeout=20, **options)
    try:
        yield socket
    finally:
        socket.shutdown()


@pytest.mark.parametrize("path", ["/ws?clientId=me", "/api/ws?clientId=me"])
def test_a_key_opens(keyed: Running, path: str) -> None:
    with connected(keyed, path, header=["X-API-Key: alice-key"], suppress_origin=True) as socket:
        told = json.loads(socket.recv())
    assert told["data"] == {"status": {"exec_info": {"queue_remaining": 3}}, "sid": "me"}


def test_a_socket_is_named_and_has_its_line_in_the_log(keyed: Running) -> None:
    header = ["X-API-Key: alice-key", "X-Request-Id: socket-1"]
    with access_lines() as lines:
        with connected(keyed, header=header, suppress_origin=True) as socket:
            told = socket.recv()
            assert socket.headers["x-request-id"] == "socket-1"
        line = lines.of("/ws")
        with pytest.raises(websocket.WebSocketBadStatusException) as refused, connected(keyed):
            pass
        other = lines.of("/ws")
    assert (line["request_id"], line["status"], line["client"]) == ("socket-1", 101, "alice")
    assert line["bytes"] == len(told)
    assert (other["status"], other["client"]) == (401, None)
    assert other["request_id"] == (refused.value.resp_headers or {})["x-request-id"]


def test_without_a_name_one_is_given(keyed: Running) -> None:
    with connected(keyed, "/ws", header=["X-API-Key: alice-key"], suppress_origin=True) as socket:
        assert json.loads(socket.recv())["data"]["sid"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 401),
        ({"header": ["X-API-Key: wrong"]}, 401),
        ({"header": ["X-API-Key: alice-key"], "origin": "http://elsewhere.example"}, 403),
        ({"header": ["X-API-Key: alice-key"], "origin": "null"}, 403),
        ({"header": ["X-API-Key: alice-key"], "host": "elsewhere.example", "suppress_origin": True}, 403),
        ({"header": ["X-API-Key: spent-key"], "suppress_origin": True}, 429),
    ],
)
def test_who_is_not_let_in(keyed: Running, options: dict[str, Any], status: int) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused, connected(keyed, **options):
        pass
    assert refused.value.status_code == status
    assert b"error" in (refused.value.resp_body or b"")


def test_the_log_of_sockets_holds_no_query_and_a_refusal_is_no_error(
    keyed: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with access_lines() as lines:
        with connected(
            keyed, "/ws?token=secret", header=["X-API-Key: alice-key"], suppress_origin=True
        ) as socket:
            socket.recv()
        lines.of("/ws")
        for options in ({}, {"origin": "http://elsewhere.example"}):
            with (
                pytest.raises(websocket.WebSocketBadStatusException),
                connected(keyed, "/ws?token=secret", **options),
            ):
                pass
            lines.of("/ws")
    # The server says what it has to say of a socket before it serves the next request.
    assert keyed.client.get("/healthz").status_code == 200
    assert "secret" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_no_other_address_is_a_socket(keyed: Running) -> None:
    with (
        pytest.raises(websocket.WebSocketBadStatusException) as refused,
        connected(keyed, "/v1/jobs", header=["X-API-Key: alice-key"], suppress_origin=True),
    ):
        pass
    assert refused.value.status_code in (403, 404)


def test_a_client_that_says_too_much_is_left(keyed: Running) -> None:
    with connected(keyed, header=["X-API-Key: alice-key"], suppress_origin=True) as socket:
        socket.recv()
        socket.send("hello")
        socket.send("x" * 200_000)
        # Answered by an end; its client may find the connection gone while it says goodbye.
        with suppress(ConnectionError):
            assert socket.recv_data()[0] == websocket.ABNF.OPCODE_CLOSE


def test_a_browser_keeps_its_key_in_a_cookie(keyed: Running) -> None:
    assert keyed.client.get("/calotype/session").status_code == 401
    assert keyed.client.post("/calotype/session", json={"key": "wrong"}).status_code == 401
    answer = keyed.client.post("/calotype/session", json={"key": "alice-key"})
    assert answer.json() == {"client": "alice", "admin": False, "keys": True}
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=strict" in kept
    cookie = kept.partition(";")[0]
    assert keyed.client.get("/calotype/session", headers={"Cookie": cookie}).json()["client"] == "alice"
    with connected(keyed, cookie=cookie) as socket:
        assert json.loads(socket.recv())["type"] == "status"
    ended = keyed.client.delete("/calotype/session", headers={"Cookie": cookie})
    assert ended.status_code == 204
    assert "Max-Age=0" in ended.headers["set-cookie"]
    keyed.client.cookies.clear()
