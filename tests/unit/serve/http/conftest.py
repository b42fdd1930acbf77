"""Servers that live as long as a file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from calotype.serve.workflow.service import WorkflowService
from tests.unit.serve.http.fake_service import StandInKeys
from tests.unit.serve.http.running import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """Without keys, for this machine."""
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    """With keys: alice, bob, and root, who is an admin."""
    # No route of workflows is reached in these tests: all of them are before the door.
    with running(keys=StandInKeys(), admins=("root",), workflows=cast("WorkflowService", object())) as found:
        yield found
