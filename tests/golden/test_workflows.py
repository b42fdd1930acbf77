"""Workflows show today what they showed when their golden pictures were made, here and in a new process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from calotype.workflow.load import open_workflow
from tests.engines import difference, mean_difference
from tests.golden.make_workflows import FOLDER, NAMES, graph, open_host
from tests.warm_python import warm_python
from tests.workflows import Host

REMAKE = "if the change is meant, make them anew: python -m tests.golden.make_workflows"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return open_host(tmp_path_factory.mktemp("models"))


def _made(host: Host, prompt: Mapping[str, Any]) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture of a graph, and which nodes it took."""
    host.saved.clear()
    ran = host.run(prompt)
    (picture,) = host.saved
    return picture, ran


def _golden(name: str) -> Image.Image:
    with Image.open(FOLDER / f"{name}.png") as golden:
        return golden.convert("RGB")


def _below(prompt: Mapping[str, Any], node: str) -> set[str]:
    """A node and all that needs it."""
    found: set[str] = set()
    waiting = {node}
    while waiting:
        found |= waiting
        waiting = {
            name
            for name, each in prompt.items()
            if name not in found
            and any(isinstance(value, list) and value[0] in waiting for value in each["inputs"].values())
        }
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_has_not_drifted(name: str, host: Host) -> None:
    picture, ran = _made(host, graph(name))
    assert set(ran) <= graph(name).keys()
    assert difference(picture, _golden(name)) <= 2, REMAKE


@pytest.mark.parametrize("name", NAMES)
def test_the_file_holds_the_graph_that_made_it(name: str, host: Host) -> None:
    data = (FOLDER / f"{name}.png").read_bytes()
    assert open_workflow(data, name, host.registry).prompt == graph(name), REMAKE
    assert len(data) < 40_000


@pytest.mark.parametrize(
    ("name", "node", "seed"),
    [
        ("text_to_image", "3", "seed"),
        ("two_pass_upscale", "11", "seed"),
        ("sdxl_base_and_refiner", "10", "noise_seed"),
    ],
)
def test_changing_only_the_seed_runs_only_what_is_below_it(
    name: str, node: str, seed: str, host: Host
) -> None:
    before, _ = _made(host, graph(name))
    changed = deepcopy(graph(name))
    changed[node]["inputs"][seed] += 1
    after, ran = _made(host, changed)
    assert set(ran) == _below(changed, node) < changed.keys()
    assert mean_difference(before, after) > 3


def test_a_new_process_makes_the_same_bytes_of_the_graph_in_the_picture(host: Host, tmp_path: Path) -> None:
    here, _ = _made(host, graph("text_to_image"))
    command = [warm_python(), "-m", "calotype", "run", str(FOLDER / "text_to_image.png")]
    # As many threads as here: how a sum is shared out shows in its last bits.
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path), "--device", "cpu"],
        env=alone,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    (written,) = tmp_path.glob("*.png")
    with Image.open(written) as there:
        assert there.tobytes() == here.tobytes()
        assert open_workflow(written.read_bytes(), "it", host.registry).prompt == graph("text_to_image")
