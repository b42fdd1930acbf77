"""Real deployments with a small package of nodes and an engine that does nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import calotype
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.daemon import deploy, stop
from calotype.serve.lifecycle.registry import Endpoint, all_deployment_dirs
from tests.unit.serve.workflow.comfy_client import ComfyClient

NODES = Path(__file__).parent / "node_package"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders of the module's own, the small nodes installed, and no deployment left behind."""
    folder = tmp_path_factory.mktemp("workflows")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CALOTYPE_STATE", str(folder / "state"))
        patched.setenv("CALOTYPE_MODELS", str(folder / "models"))
        source = str(Path(calotype.__file__).parents[1])
        patched.setenv("PYTHONPATH", os.pathsep.join([source, str(NODES)]))
        yield folder
        for place in all_deployment_dirs():
            running = place.running()
            if running is not None:
                stop(running, at_once=True)


def planned(name: str = "flows", **values: Any) -> DeploymentConfig:
    return DeploymentConfig.parse(
        {"name": name, "models": ["m"], "engine": "nothing", "devices": ["cpu"], "drain_s": 5.0, **values}
    )


@pytest.fixture(scope="module")
def deployed(surroundings: Path) -> Endpoint:
    return deploy(planned())


Connect = Callable[..., ComfyClient]


@pytest.fixture
def connect(deployed: Endpoint) -> Iterator[Connect]:
    clients: list[ComfyClient] = []

    def connected(url: str | None = None, **options: Any) -> ComfyClient:
        clients.append(ComfyClient(url or deployed.http, **options))
        return clients[-1]

    yield connected
    for client in clients:
        # What a failed test has left must not hold up the next.
        client.post("/queue", {"clear": True})
        client.post("/interrupt")
        client.close()


def graph(*between: tuple[str, dict[str, Any]], **painted: Any) -> dict[str, Any]:
    """Paint, what is to come between, save: nodes 1, 2, 3..."""
    nodes: dict[str, Any] = {"1": {"class_type": "SmallPaint", "inputs": {"steps": 3, **painted}}}
    for kind, inputs in between:
        last = str(len(nodes))
        nodes[str(len(nodes) + 1)] = {"class_type": kind, "inputs": {"image": [last, 0], **inputs}}
    nodes["save"] = {"class_type": "SmallSave", "inputs": {"images": [str(len(nodes)), 0]}}
    return nodes
