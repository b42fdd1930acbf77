"""The Python client where the network is not as it should be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from calotype.serve import client as client_module
from calotype.serve.client import Client
from calotype.serve.service import UnavailableError
from tests.unit.serve_grpc.lost_network import network
from tests.unit.serve_grpc.running import Running


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
