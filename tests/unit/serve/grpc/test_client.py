"""The Python client where the network, or what it is told, is not as it should be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from calotype.core.errors import RequestError
from calotype.serve import client as client_module
from calotype.serve.client import Client
from calotype.serve.service import UnavailableError
from tests.unit.serve.grpc.lost_network import network
from tests.unit.serve.grpc.running import Running


def test_a_lost_network_is_noticed(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PING_EVERY_MS", 100)
    monkeypatch.setattr(client_module, "PING_TIMEOUT_MS", 100)
    prompt = "hold while the network is lost"
    with (
        ThreadPoolExecutor() as threads,
        network(server.port) as way,
        Client(f"127.0.0.1:{way.port}") as client,
    ):
        asked = threads.submit(client.query, prompt)
        server.await_(server.service.holding(prompt))
        way.lose()
        with pytest.raises(UnavailableError, match=r"the connection to it was lost: .*ping timeout"):
            asked.result(timeout=20)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"priority": 99_999_999_999}, "^priority: 99999999999 is out of range; it must be at most 100$"),
        ({"priority": "high"}, "^priority: 'high'"),
        ({"deadline_s": "soon"}, "^deadline_s: 'soon'"),
        ({"model": 7, "width": 513.5}, r"^(?s:width: 513\.5.*\nmodel: 7)"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(server: Running, how: dict[str, Any], words: str) -> None:
    with Client(f"127.0.0.1:{server.port}") as client, pytest.raises(RequestError, match=words):
        client.query("a red apple", **how)
