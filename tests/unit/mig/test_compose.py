"""One server a slice, on the pretended machine: real deployments of an engine that needs no GPU."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calotype.mig.simulation.fake_driver import SimulatedDriver
from calotype.mig.simulation.fake_host import new_host
from calotype.serve.api_keys import ApiKeys
from calotype.serve.lifecycle.daemon import stop
from calotype.serve.lifecycle.registry import DeploymentDir, all_deployment_dirs
from tests.faults.checks import processes_with
from tests.ports import free_ports
from tests.unit.mig.conftest import Machine

SLICES = 2
DOCKER = """#!{python}
# Docker's place is taken by a program that starts the same server without a container around it.
import subprocess, sys
from pathlib import Path
from calotype.serve.lifecycle.registry import DeploymentDir
from calotype.serve.lifecycle.config import DeploymentConfig
words = sys.argv[1:]
if words[0] == "run":
    told = dict(zip(words, words[1:]))
    name, outer = told["--name"], int(told["--publish"].split(":")[0])
    assert words[words.index("example/serve:1") + 1] == "serve", words
    place = DeploymentDir(Path(__file__).with_name(name))
    reached = {{"http_port": outer}}
    plan = {{"name": name, "models": ("emoji",), "devices": ("cpu",), "engine": "nothing"}}
    place.keep_plan(DeploymentConfig.parse({{**plan, "reached": reached}}))
    (place.folder / "gpus").write_text(told["--gpus"])
    words = ["setsid", "--fork", sys.executable, "-m", "calotype.serve.lifecycle", str(place.folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


@pytest.fixture
def cut(machine: Machine) -> Iterator[Machine]:
    """A GPU in two slices; whatever was deployed is stopped in the end."""
    machine.become(new_host("A100-80GB"))
    assert machine.mig("apply", "9,9", "--yes").code == 0
    yield machine
    for place in all_deployment_dirs():
        if running := place.running():
            stop(running, at_once=True)


@pytest.fixture
def port() -> int:
    """The first of as many free ports as there are slices."""
    return free_ports(SLICES)[0]


def uuids(machine: Machine) -> list[str]:
    [state] = SimulatedDriver(machine.path).read()
    return [part.uuid or "" for instance in state.instances for part in instance.compute]


def deploy(machine: Machine, port: int, *words: object) -> tuple[int, str, str]:
    asked = ("deploy", "emoji", "--engine", "nothing", "--first-port", port, "--pictures", 2, "--steps", 2)
    done = machine.mig(*asked, *words)
    return done.code, done.out, done.err


def test_a_process_for_each_slice_is_asked_and_stopped(cut: Machine, port: int) -> None:
    code, out, err = deploy(cut, port, "--json")
    assert code == 0, err
    rows = json.loads(out)
    assert [row["uuid"] for row in rows] == uuids(cut)
    assert [row["port"] for row in rows] == [port, port + 1]
    assert all(row["picture_s"] > 0 for row in rows)
    assert [place.name for place in all_deployment_dirs()] == [row["name"] for row in rows]
    # Each slice has a worker that sees it and nothing else.
    for uuid in uuids(cut):
        assert processes_with(f"CUDA_VISIBLE_DEVICES={uuid}")
    again = deploy(cut, port)
    assert (again[0], "runs already" in again[2]) == (2, True)
    assert deploy(cut, port, "--remove")[0] == 0
    assert not any(processes_with(f"CUDA_VISIBLE_DEVICES={uuid}") for uuid in uuids(cut))
    assert "is not running" in deploy(cut, port, "--remove")[1]


def test_from_outside_with_a_key(cut: Machine, port: int, tmp_path: Path) -> None:
    key = ApiKeys(tmp_path / "keys").create("operator")
    words = ("--host", "0.0.0.0", "--keys", tmp_path / "keys", "--json")
    refused = deploy(cut, port, *words)
    assert (refused[0] != 0, "401" in refused[2]) == (True, True)
    assert deploy(cut, port, "--remove")[0] == 0
    code, out, err = deploy(cut, port, *words, "--api-key", key)
    assert code == 0, err
    assert len(json.loads(out)) == SLICES


def test_all_or_none(cut: Machine, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        code, _, err = deploy(cut, port)
    assert code != 0
    assert str(port + 1) in err
    assert not any(place.running() for place in all_deployment_dirs())


@pytest.mark.parametrize("how", ["--render", "--containers"])
def test_what_is_only_written_is_one_json_value_to_a_program(
    cut: Machine, port: int, tmp_path: Path, how: str
) -> None:
    code, out, err = deploy(cut, port, how, "--out", tmp_path, "--json")
    assert code == 0, err
    assert [(row["uuid"], row["picture_s"]) for row in json.loads(out)] == [
        (uuid, None) for uuid in uuids(cut)
    ]
    assert f"wrote {tmp_path / 'compose.yaml'}" in err


def test_containers_are_started_by_the_script_and_asked_from_outside(
    cut: Machine, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "docker").write_text(DOCKER.format(python=sys.executable))
    (bin_folder / "docker").chmod(0o755)
    (bin_folder / "nvidia-ctk").write_text('#!/bin/sh\necho "$@" >> "$0.log"\n')
    (bin_folder / "nvidia-ctk").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "80")
    words = ("--containers", "--image", "example/serve:1", "--out", tmp_path, "--patience", 120)
    shown = deploy(cut, port, *words)
    assert (shown[0], "nothing was started" in shown[1]) == (0, True)
    assert not (bin_folder / "nvidia-ctk.log").exists()
    code, out, err = deploy(cut, port, *words, "--yes")
    try:
        assert code == 0, err
        assert "of the fastest" in out
        # Whole names, also in a narrow terminal.
        assert "calotype-gpu0-slice4  3g.40gb" in out
        assert (bin_folder / "nvidia-ctk.log").read_text().startswith("cdi generate --output=/")
        given = [(place / "gpus").read_text() for place in sorted(bin_folder.glob("calotype-*"))]
        assert given == [f'"device={uuid}"' for uuid in uuids(cut)]
    finally:
        for folder in bin_folder.glob("calotype-*"):
            if running := DeploymentDir(folder).running():
                stop(running, at_once=True)
    (bin_folder / "docker").write_text("#!/bin/sh\necho no runtime for this >&2; exit 125\n")
    failed = deploy(cut, port, *words, "--yes")
    assert failed[0] != 0
    assert "ended with 125: no runtime for this" in failed[2]
    monkeypatch.setenv("PATH", str(tmp_path))
    without = deploy(cut, port, "--containers", "--remove")
    assert (without[0] != 0, "no program docker on this machine to run: docker rm" in without[2]) == (
        True,
        True,
    )
