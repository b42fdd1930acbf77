"""Jobs on a real Ray cluster of two nodes, by the same commands as on every other back end.

What does not need a training is tried with a program that stands in for Python, which starts at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

import calotype
from calotype.cli.main import run
from calotype.core.errors import ExitCode
from calotype.core.process import process_start_time
from calotype.launch.backend import JobRecord, JobState, JobStatus, LogsWanted
from calotype.launch.job_store import find
from calotype.launch.ray import RayBackend
from calotype.launch.registry import open_backend
from calotype.launch.submit import status_of
from tests.polling import until
from tests.small_models import shrunk_folder
from tests.unit.serve.ray.conftest import CPUS, Nodes
from tests.unit.train.runs import arguments, settings

SOURCE = Path(calotype.__file__).parents[1]
Run = Callable[..., str]

STAND_IN = """#!/bin/bash
[ "$1" != job.py ] || exec {python} "$@"
echo "[rank0]: starts as $*"
echo "[rank0]: GPUs $CUDA_VISIBLE_DEVICES, threads ${OMP_NUM_THREADS:-none}"
case "$BEHAVE-$*" in
  by-task-*part=1/*) exit 3 ;;
  wait-*|by-task-*part=2/*)
    trap 'echo told to stop; exit 1' TERM
    touch "$HERE/waits.$$"
    while :; do sleep 0.05; done ;;
esac
echo ends
"""


@pytest.fixture
def call(
    dashboard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command line, and answers with what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", dashboard)

    def called(*words: str) -> str:
        code = run(list(words))
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return called


@pytest.fixture
def stand_in(tmp_path: Path) -> list[str]:
    """Options of a launch by which our own program runs instead of Python."""
    program = tmp_path / "python"
    program.write_text(STAND_IN.replace("{python}", sys.executable))
    program.chmod(0o755)
    return [f"--set=python={program}", f"--set=environment.HERE={tmp_path}"]


def submitted(call: Run, *words: str) -> JobRecord:
    return find(json.loads(call("launch", "submit", "--on=ray", "--json", *words))["id"])


def status(record: JobRecord) -> JobStatus:
    return status_of(open_backend("ray"), find(record.id))


def ended(record: JobRecord) -> JobStatus:
    # Each look is some work for Ray.
    until(lambda: status(record).state.is_over, f"{record.id} is over", pause_s=0.5)
    return status(record)


def test_two_nodes_train_together_and_the_row_is_collected(
    call: Run, nodes: Nodes, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nodes.start_second()
    base = shrunk_folder(tmp_path_factory.mktemp("models"), "emoji")
    (tmp_path / "small.yaml").write_text("{}", encoding="utf-8")
    chosen = arguments(settings(base, tmp_path / "run", model__micro_batch_size=1))
    # Nodes of one machine meet on its own interface.
    told = ["network.interface=lo", f"environment.PYTHONPATH={SOURCE}", "environment.OMP_NUM_THREADS=1"]
    said = call(
        *("train", "small.yaml", *chosen, "--device=cpu", "--benchmark", "--warmup-steps=1", "--json"),
        *("--benchmark-steps=2", "--launch=ray", "--nodes=2", *(f"--launch-set={one}" for one in told)),
    )
    record = find(json.loads(said)["id"])
    assert ended(record).state is JobState.COMPLETED, call("launch", "logs", record.id)
    (row,) = json.loads(call("launch", "collect", record.id, "--json"))["rows"]
    assert (row["devices"], row["nodes"], row["recipe"]["model"]["global_batch_size"]) == (1, 2, 2)
    ranks = [call("launch", "logs", record.id, f"--rank={rank}") for rank in (0, 1)]
    assert "samples/gpu/s" in ranks[0]
    assert "samples/gpu/s" not in ranks[1], "the first speaks for all"


def test_a_lost_node_is_waited_for_and_a_cancelled_job_is_told_first(
    call: Run, nodes: Nodes, stand_in: list[str], tmp_path: Path
) -> None:
    nodes.start_second()
    # So much that each node has room for one.
    size = ["--nodes=2", f"--set=cpus_per_node={CPUS - 1}", "--set=environment.BEHAVE=wait"]
    record = submitted(call, *stand_in, *size, "train", "emoji", "--device=cpu")
    until(lambda: len(list(tmp_path.glob("waits.*"))) == 2, "both nodes run")
    assert status(record).state is JobState.RUNNING
    nodes.kill_second()
    wanted = f"waits for 2 nodes with {CPUS - 1} CPU"
    until(lambda: status(record).restarts == 1, "the loss is seen", pause_s=0.5)
    assert status(record).reason == wanted
    assert "pending" in call("launch", "status", record.id)
    nodes.start_second()
    until(lambda: len(list(tmp_path.glob("waits.*"))) == 4, "both run again")
    assert "is being cancelled" in call("launch", "cancel", record.id)
    assert ended(record).state is JobState.CANCELLED
    printed = call("launch", "logs", record.id)
    assert "node 1 is lost" in printed or "node 0 is lost" in printed
    assert printed.count("told to stop") == 3, "one when the other was lost, both at the end"
    assert "has already ended: cancelled" in call("launch", "cancel", record.id)


def test_tasks_of_an_array_end_each_in_its_own_way(call: Run, nodes: Nodes, stand_in: list[str]) -> None:
    nodes.start_second()
    more = ["array=3", "launcher=plain", "environment.BEHAVE=by-task", "time_limit=3s", "grace_s=1"]
    words = ["bench", "train", "part={task}/{tasks}", "it's $HOME"]
    record = submitted(call, *stand_in, *(f"--set={one}" for one in more), "--gpus-per-node=1", *words)
    # One GPU for three: they take turns, and following goes on until all of them have ended.
    lines: list[str] = []
    wanted = LogsWanted(follow=True)
    following = Thread(target=lambda: lines.extend(RayBackend().logs(record, wanted)), daemon=True)
    following.start()
    assert [(task.state, task.exit_code) for task in ended(record).tasks] == [
        (JobState.COMPLETED, 0),
        (JobState.FAILED, 3),
        (JobState.TIMED_OUT, 124),
    ], call("launch", "logs", record.id)
    following.join(60)
    assert not following.is_alive(), lines
    followed = "\n".join(lines)
    assert followed.count("starts as") == 3
    (first,) = [line for line in followed.splitlines() if "part=0/3" in line]
    assert first == "[rank0]: starts as -m calotype bench train part=0/3 it's $HOME"
    second = call("launch", "logs", record.id, "--task=1").splitlines()
    assert "[rank0]: GPUs 0, threads none" in second
    whole = call("launch", "logs", record.id, "--task=0").splitlines()
    assert "ends" in whole
    # Ray may have had the last word, with news of its nodes.
    assert call("launch", "logs", record.id, "--task=0", "--lines=1") == f"{whole[-1]}\n"


# Ignores SIGTERM, as a process does that waits for a device.
DEAF = """import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"{os.environ['HERE']}/deaf.{os.getpid()}", "w").close()
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("launcher", ["plain", "torchrun"])
def test_what_does_not_end_when_it_is_cancelled_is_killed(
    call: Run, nodes: Nodes, tmp_path: Path, launcher: str
) -> None:
    nodes.start_second()
    package = tmp_path / "deaf" / "calotype"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(DEAF)
    more = [f"launcher={launcher}", "grace_s=1", f"environment.PYTHONPATH={package.parent}"]
    given = [f"--set={one}" for one in (*more, f"environment.HERE={tmp_path}")]
    record = submitted(call, *given, "doctor")
    until(lambda: list(tmp_path.glob("deaf.*")), "it has started")
    call("launch", "cancel", record.id)
    assert ended(record).state is JobState.CANCELLED
    (pid,) = [int(file.name.partition(".")[2]) for file in tmp_path.glob("deaf.*")]
    try:
        until(lambda: process_start_time(pid) is None, "it is killed", patience_s=30)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)


def test_the_file_runs_without_calotype(
    call: Run, nodes: Nodes, stand_in: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("launch", "render", "--on=ray", "--out=files", *stand_in, "--set=launcher=plain", "train", "emoji")
    done = subprocess.run(
        [sys.executable, "-I", "job.py"],
        cwd=tmp_path / "files",
        env={**os.environ, "RAY_ADDRESS": nodes.address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[1:]) == (
        0,
        ["[rank0]: starts as -m calotype train emoji", "[rank0]: GPUs , threads none", "ends"],
    ), done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes=0"], "nodes: 0 is out of range"),
        (["--nodes=3"], "nodes: 3 nodes are more than the cluster has"),
        (
            ["--gpus-per-node=2"],
            "gpus_per_node: 2 GPUs are more than a node of the cluster has; ask for at most 1",
        ),
        (
            ["--gpus-per-node=1", "--nodes=2"],
            "nodes: 2 nodes are more than the cluster has with these resources",
        ),
        (
            ["--set=cpus_per_node=99"],
            f"cpus_per_node: 99 CPUs are more than a node of the cluster has; ask for at most {CPUS}",
        ),
        (["--set=memory_per_node=99T"], "memory_per_node: 1.03809e+08 MiB are more than"),
        (["--set=time_limit=soon"], "time_limit: 'soon' is no time"),
        (
            ["--set=ray.resources={mig-2g.20gb: 1}"],
            "ray.resources: 1 of 'mig-2g.20gb' are more than a node has, 0",
        ),
        (["--set=image=calotype:1"], "image: nodes of a Ray cluster have their own"),
        (["--set=min_nodes=1", "--nodes=2"], "min_nodes: Ray gives all 2 nodes or none"),
    ],
)
def test_what_no_node_has_is_refused_before_submission(
    call: Run, nodes: Nodes, words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.start_second()
    assert run(["launch", "submit", "--on=ray", *words, "train", "emoji"]) == ExitCode.BAD_REQUEST
    assert says in capsys.readouterr().err
    assert not list(tmp_path.glob("launches/*"))
