"""Slurm's answers, as its programs print them, are understood."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calotype.launch.backend import JobRecord, JobState, JobStatus
from calotype.launch.slurm.backend import SlurmBackend
from calotype.launch.slurm.preflight import limit_s, parsed, problems_with
from calotype.launch.slurm.status import combined, from_accounting, from_controller, status_of, tasks_in
from tests.unit.launch.specs import TRAINING, spec

# A cluster with two kinds of nodes in one partition, as `sinfo --Node` prints it.
SINFO = """\
p5|up|7-00:00:00|1-infinite|gpu-1|192|2000000|gpu:h100:8(S:0-1)
p5|up|7-00:00:00|1-infinite|gpu-2|192|2000000|gpu:h100:8(S:0-1)
p5|up|7-00:00:00|1-infinite|old-1|96|1100000|gpu:a100:8,nvme:1
cpu*|up|infinite|1-4|c-1|64|256000|(null)
drained|down|1:00:00|1|c-1|64|256000|(null)
"""
SMALL: dict[str, Any] = {
    **TRAINING,
    "nodes": 1,
    "gpus_per_node": 0,
    "memory_per_node": None,
    "cpus_per_node": None,
}


def refused(**changes: Any) -> list[str]:
    return [str(problem) for problem in problems_with(spec(SMALL, **changes), parsed(SINFO))]


def test_a_cluster_is_read() -> None:
    p5, cpu, drained = parsed(SINFO)
    assert (p5.name, p5.is_default, p5.time_limit_s, p5.most_nodes) == ("p5", False, 7 * 86400, None)
    assert [(node.name, node.gpus) for node in p5.nodes] == [
        ("gpu-1", (("h100", 8),)),
        ("gpu-2", (("h100", 8),)),
        ("old-1", (("a100", 8),)),
    ]
    assert (cpu.name, cpu.is_default, cpu.time_limit_s, cpu.most_nodes) == ("cpu", True, None, 4)
    assert not drained.is_up


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:8", (("", 8),)),
        ("gpu:8(S:0-1)", (("", 8),)),
        ("gpu:2080ti:4(S:0)", (("2080ti", 4),)),
        ("nvme:2,gpu:3090:8,mps:400", (("3090", 8),)),
        ("gpu:a100:2(S:0),gpu:1g.10gb:14(S:0-1)", (("a100", 2), ("1g.10gb", 14))),
        ("gpu:h100:no_consume:8", (("h100", 8),)),
        ("egpu:3,lustre", ()),
        ("(null)", ()),
    ],
)
def test_gpus_and_slices_are_counted_whatever_their_kind_is_called(
    gres: str, gpus: tuple[tuple[str, int], ...]
) -> None:
    (partition,) = parsed(f"p*|up|infinite|1-4|n1|64|256000|{gres}\n")
    assert partition.nodes[0].gpus == gpus


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"slurm": {"partition": "p6"}}, ["slurm.partition: no partition 'p6'; did you mean 'p5'?"]),
        ({"slurm": {}, "nodes": 5}, ["at most 4", "nodes: 5 nodes are more than partition cpu has"]),
        (
            {"slurm": {}, "gpus_per_node": 1},
            ["1 GPUs are more than a node of partition cpu has; ask for at most 0"],
        ),
        ({"slurm": {"partition": "drained"}}, ["slurm.partition: partition drained is down", "time_limit"]),
        ({"nodes": 4}, ["nodes: 4 nodes are more than partition p5 has", "ask for at most 3"]),
        # Three nodes, but only two of them have so many processors.
        (
            {"nodes": 3, "cpus_per_node": 128},
            ["nodes: 3 nodes are more than partition p5 has", "ask for at most 2"],
        ),
        (
            {"nodes": 3, "gpus_per_node": 8, "slurm": {"partition": "p5", "gpu_type": "h100"}},
            ["nodes: 3 nodes are more than partition p5 has", "ask for at most 2"],
        ),
        (
            {"gpus_per_node": 8, "slurm": {"partition": "p5", "gpu_type": "h10"}},
            ["slurm.gpu_type: no 'h10' in partition p5; did you mean 'h100'"],
        ),
        (
            {"time_limit": "8d"},
            ["time_limit: 8d is more than partition p5 allows; ask for at most 7-00:00:00"],
        ),
    ],
)
def test_what_could_never_run_is_found(changes: dict[str, Any], says: list[str]) -> None:
    found = "\n".join(refused(**changes))
    for part in says:
        assert part in found


@pytest.mark.parametrize("changes", [{}, {"nodes": 3, "gpus_per_node": 8}, {"nodes": 4, "min_nodes": 3}])
def test_what_could_run_is_let_through(changes: dict[str, Any]) -> None:
    assert refused(**changes) == []


def test_of_several_partitions_one_that_can_run_a_job_is_enough() -> None:
    assert refused(nodes=2, gpus_per_node=8, slurm={"partition": "cpu,p5"}) == []
    assert refused(slurm={"partition": "drained,cpu"}) == []
    neither = "\n".join(refused(nodes=2, gpus_per_node=9, slurm={"partition": "cpu,p5"}))
    assert "a node of partition cpu has" in neither
    assert "a node of partition p5 has" in neither
    (unknown,) = refused(slurm={"partition": "p5,p6"})
    assert unknown == "slurm.partition: no partition 'p6'; did you mean 'p5'?"


@pytest.mark.parametrize(
    ("partition", "gpus"), [("p5", 8), ("cpu", 0), ("cpu,p5", 8), ("p5,small", 4), ("nowhere", 0)]
)
def test_a_job_for_several_partitions_has_as_many_gpus_as_each_of_them(
    partition: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = SINFO + "small|up|infinite|1-4|s-1|64|256000|gpu:l4:4\n"
    monkeypatch.setattr("calotype.launch.slurm.preflight.run_slurm", lambda *_: answer)
    assert SlurmBackend().gpus_of_a_node(spec(SMALL, slurm={"partition": partition})) == gpus


def test_a_cluster_without_a_default_asks_for_a_partition() -> None:
    (problem,) = problems_with(spec(SMALL, slurm={}), parsed(SINFO.replace("cpu*", "cpu")))
    assert str(problem) == "slurm.partition: the cluster has no default; known: cpu, drained, p5"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("infinite", None), ("30:00", 1800), ("1:00:00", 3600), ("2-00:00:00", 172800), ("n/a", None)],
)
def test_limits_are_read(text: str, seconds: int | None) -> None:
    assert limit_s(text) == seconds


def line(**values: str) -> str:
    job = {
        "JobId": "7",
        "JobState": "RUNNING",
        "Reason": "None",
        "Restarts": "0",
        "ExitCode": "0:0",
        **values,
    }
    return " ".join(f"{name}={value}" for name, value in job.items()) + "\n"


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"NodeList": "n[1-2]"}, JobStatus(state=JobState.RUNNING, nodes=("n[1-2]",))),
        ({"JobState": "COMPLETING", "NodeList": "(null)"}, JobStatus(state=JobState.RUNNING)),
        (
            {"JobState": "PENDING", "Reason": "BeginTime", "Restarts": "2"},
            JobStatus(state=JobState.PENDING, reason="BeginTime", restarts=2),
        ),
        ({"JobState": "REQUEUED"}, JobStatus(state=JobState.PENDING)),
        ({"JobState": "COMPLETED"}, JobStatus(state=JobState.COMPLETED, exit_code=0)),
        (
            {"JobState": "FAILED", "Reason": "NonZeroExitCode", "ExitCode": "3:0"},
            JobStatus(state=JobState.FAILED, reason="NonZeroExitCode", exit_code=3),
        ),
        ({"JobState": "OUT_OF_MEMORY", "ExitCode": "0:125"}, JobStatus(state=JobState.FAILED, exit_code=253)),
        ({"JobState": "TIMEOUT", "ExitCode": "0:15"}, JobStatus(state=JobState.TIMED_OUT, exit_code=143)),
        ({"JobState": "CANCELLED"}, JobStatus(state=JobState.CANCELLED, exit_code=0)),
    ],
)
def test_states_are_the_same_everywhere(values: dict[str, str], status: JobStatus) -> None:
    assert from_controller(line(**values)) == {0: status}


def test_an_array_is_one_job_of_many_tasks() -> None:
    text = line(ArrayTaskId="2-4%2", JobState="PENDING", Reason="Resources")
    text += line(ArrayTaskId="1", JobState="RUNNING") + line(
        ArrayTaskId="0", JobState="FAILED", ExitCode="3:0"
    )
    status = combined(from_controller(text), 5)
    assert status.state is JobState.RUNNING
    assert [task.state.value for task in status.tasks] == ["failed", "running", *["pending"] * 3]
    assert tasks_in("0,2-3%1") == [0, 2, 3]
    assert tasks_in("0-4:2,7") == [0, 2, 4, 7]


def test_accounting_speaks_for_jobs_that_the_controller_forgot() -> None:
    cancelled = JobStatus(state=JobState.CANCELLED, exit_code=143, nodes=("n1",))
    assert from_accounting("7|CANCELLED by 1000|0:15|n1\n") == {0: cancelled}
    status = combined(from_accounting("7_0|COMPLETED|0:0|n1\n7_1|TIMEOUT|0:0|n2\n"), 2)
    assert (status.state, status.nodes) == (JobState.TIMED_OUT, ("n1", "n2"))
    assert from_accounting("") == {}
    never_ran = JobStatus(state=JobState.CANCELLED, exit_code=0)
    assert from_accounting("7|CANCELLED by 1000|0:0|None assigned\n") == {0: never_ran}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts programs into Slurm's place, by name and what they do."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def put(**bodies: str) -> None:
        for name, body in bodies.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / name).chmod(0o755)

    return put


def record(folder: Path, **changes: Any) -> JobRecord:
    return JobRecord(
        id="sd2-base-1",
        backend="slurm",
        handle="7",
        folder=str(folder),
        spec=spec(SMALL, **changes),
        files=("job.sbatch",),
        submitted_at="2026-01-01T00:00:00+00:00",
    )


def test_tasks_that_ended_long_before_the_others_are_not_lost(
    programs: Callable[..., None], tmp_path: Path
) -> None:
    """The controller forgets them while the array runs."""
    (tmp_path / "exit-code.0").write_text("0\n")
    last = f"cat <<'END'\n{line(ArrayTaskId='2', JobState='COMPLETED')}END"
    programs(scontrol=last, sacct="echo '7_1|FAILED|3:0|n1'")
    status = status_of(record(tmp_path, array=3))
    assert [(task.state, task.exit_code) for task in status.tasks] == [
        (JobState.COMPLETED, 0),
        (JobState.FAILED, 3),
        (JobState.COMPLETED, 0),
    ]
    assert status.state is JobState.FAILED


def test_long_lists_of_tasks_are_asked_for_whole(programs: Callable[..., None], tmp_path: Path) -> None:
    programs(scontrol='echo "JobId=7 JobState=PENDING ArrayTaskId=0${SLURM_BITSTR_LEN:+,1}"', sacct="exit 1")
    assert {task.state for task in status_of(record(tmp_path, array=2)).tasks} == {JobState.PENDING}


@pytest.mark.parametrize(
    ("left", "state"),
    [
        ("0\n", JobState.COMPLETED),
        ("3\n", JobState.FAILED),
        ("0 cancelled\n", JobState.CANCELLED),
        ("143 timed_out\n", JobState.TIMED_OUT),
        ("", JobState.LOST),
        ("0 nonsense", JobState.LOST),
    ],
)
def test_a_forgotten_job_is_known_by_what_it_left(
    programs: Callable[..., None], tmp_path: Path, left: str, state: JobState
) -> None:
    programs(scontrol="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", sacct="exit 1")
    (tmp_path / "exit-code").write_text(left)
    assert status_of(record(tmp_path)).state is state
