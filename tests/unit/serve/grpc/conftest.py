"""Servers that live as long as a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.serve.grpc.running import Running, running
from tests.unit.serve.http.fake_service import StandInKeys


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """Without keys, for this machine."""
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    """With keys: alice, bob, and root, who is an admin."""
    with running(keys=StandInKeys(), admins=("root",)) as found:
        yield found
