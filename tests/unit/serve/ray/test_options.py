"""What is said of replicas on the command line. Nothing here starts a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from calotype.cli.main import run
from calotype.core.errors import RequestError
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.lifecycle.registry import deployment_dir
from calotype.serve.lifecycle.rolling_update import check_update

RAY = ["deploy", "emoji", "--name", "one", "--engine", "ray", "--systemd"]
"""Prints a unit, and so keeps the plan without starting it."""


def test_a_plan_is_made_of_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    said = ["--ray-address", "head:6379", "--max-replicas", "4", "--jobs-per-replica", "3"]
    share = ["--gpus-per-replica", "0.5", "--cpus-per-replica", "2", "--replica-resource", "mig-2g.20gb=1"]
    assert run([*RAY, *said, *share]) == 0
    plan = deployment_dir("one").plan()
    assert plan.engine == "calotype"
    assert plan.cluster is not None
    assert (plan.cluster.address, plan.cluster.gpus_per_replica, plan.cluster.cpus_per_replica) == (
        "head:6379",
        0.5,
        2.0,
    )
    size = plan.cluster.replicas
    assert (size.least, size.most, size.jobs_each) == (1, 4, 3)
    assert plan.cluster.resources == {"mig-2g.20gb": 1.0}
    assert run([*RAY, "--min-replicas", "3", "--engine", "ray:nothing"]) == 0
    plan = deployment_dir("one").plan()
    assert plan.cluster is not None
    assert (plan.engine, plan.cluster.replicas.least, plan.cluster.replicas.most) == ("nothing", 3, 3)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        (["--gpus-per-replica", "1.5"], "1.5 is neither a fraction of one GPU nor a whole number"),
        (["--gpus-per-replica", "-1"], "at least 0"),
        (["--replicas", "0"], "at least 1"),
        (["--replicas", "2", "--max-replicas", "3"], "excludes --min-replicas and --max-replicas"),
        (["--min-replicas", "3", "--max-replicas", "2"], "at least 3 and at most 2"),
        (["--replica-resource", "mig"], "should be NAME=AMOUNT"),
        (["--device", "MIG-1234"], "is a device of one machine"),
    ],
)
def test_what_cannot_be_is_refused(said: list[str], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RAY, *said]) == 2
    assert rule in capsys.readouterr().err


def test_replicas_need_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", "emoji", "--replicas", "2"]) == 2
    assert "add --engine ray" in capsys.readouterr().err


def test_only_what_is_the_workers_own_changes_while_it_runs() -> None:
    old = DeploymentConfig.parse({"name": "one", "models": ("emoji",), "cluster": {"address": "a:1"}})
    check_update(old, old.model_copy(update={"models": ("sdxl",), "preset": "int8"}))
    with pytest.raises(RequestError, match=r"drain_s.*cannot change while"):
        check_update(old, old.model_copy(update={"drain_s": 1.0}))
    with pytest.raises(RequestError, match="it runs in the cluster at a:1"):
        check_update(old, DeploymentConfig.parse({**old.model_dump(), "cluster": {"address": "b:1"}}))
    with pytest.raises(RequestError, match="only replicas"):
        check_update(old.model_copy(update={"cluster": None}), old)


def test_without_replicas_nobody_loads_ray_or_torch() -> None:
    """Ray is an extra: a server of this machine's workers must start where it is not installed."""
    code = "import sys, calotype.serve.lifecycle.main as m; print({'ray', 'torch'} & {*sys.modules})"
    asked = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
    )
    assert asked.stdout == "set()\n"
