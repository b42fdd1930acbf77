"""A launch is refused with the value, the limit and the fix, and everything wrong with it at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calotype.core.errors import RequestError
from calotype.spec.launch import LaunchSpec
from calotype.spec.launch_sections import duration_s, memory_mib
from tests.unit.launch.specs import CONTAINER, SWEEP, TRAINING, spec


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": 0}, "nodes: 0 is out of range; it must be at least 1"),
        ({"gpus_per_node": 17}, "gpus_per_node: 17 is out of range; it must be at most 16"),
        ({"gpus_per_node": "8"}, "gpus_per_node: '8': input should be a valid integer"),
        ({"name": "My_Run"}, "name: 'My_Run' is no job name; use 1 to 40 lower-case letters"),
        ({"name": "a" * 41}, "is no job name"),
        ({"name": "run\n#SBATCH --uid=0"}, "is no job name"),
        ({"command": []}, "command: is empty; say what to run"),
        ({"command": ["train", "a\nrm -rf /"]}, "command.1: 'a\\nrm -rf /' holds a line break"),
        ({"environment": {"A B": "x"}}, "'A B' is no variable's name"),
        ({"environment": {"A": "x\ny"}}, "environment.A: 'x\\ny' holds a line break"),
        ({"environment": {"A": True}}, "environment.A: True: input should be a valid string"),
        ({"setup": ["a\nb"]}, "setup.0: 'a\\nb' holds a line break"),
        ({"work_folder": ""}, "work_folder: is empty"),
        ({"work_folder": "/a\u2028b"}, "work_folder: '/a\\u2028b' holds a line break"),
        ({"time_limit": "1:30"}, "time_limit: '1:30' is no time; write 30m, 12h or 2d, HH:MM:SS"),
        ({"time_limit": "12:61:00"}, "'12:61:00' is no time"),
        ({"time_limit": "0h"}, "'0h' is no time at all"),
        ({"time_limit": 90}, "time_limit: 90 is no time; write 30m"),
        ({"time_limit": "1m"}, "grace_s: 120 s of warning leave nothing of the time limit, 1m"),
        ({"memory_per_node": "64GB"}, "'64GB' is no memory; write for instance 512M, 64G or 2T"),
        ({"memory_per_node": "0G"}, "'0G' is no memory"),
        ({"image": "a b"}, "image: 'a b' is no image; use REGISTRY/NAME:TAG"),
        ({"mounts": ["/data"]}, "mounts.0: '/data' is no mount; write SOURCE:TARGET"),
        ({"mounts": ["data:/data"]}, "'data' is no source; use /FOLDER or pvc:CLAIM"),
        ({"mounts": [{"source": "/a\nb", "target": "/b"}]}, "mounts.0.source: '/a\\nb' holds a line break"),
        ({"slurm": {"partition": "gpu --uid=0"}}, "slurm.partition: 'gpu --uid=0' is no name here"),
        ({"slurm": {"partiton": "gpu"}}, "slurm.partiton: is not a known setting; did you mean 'partition'"),
        ({"network": {"interface": "a b"}}, "network.interface: 'a b' is no interface"),
        ({"network": {"nccl": {"NCCL_DEBUG": "INFO"}}}, "write DEBUG for NCCL_DEBUG"),
        ({"min_nodes": 17}, "min_nodes: 17 is more than nodes, 16; lower it"),
        ({"launcher": "plain"}, "launcher: plain runs the command once, and 16 nodes"),
        ({"array_at_once": 2}, "array_at_once: 2 says something about an array; set array too"),
        ({"command": ["x{task}"]}, "command: {task} and {tasks} say something about an array"),
        ({"kubernetes": {"namespace": "Team"}}, "kubernetes.namespace: 'Team' is no name here"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_do(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError) as refused:
        spec(TRAINING, **changes)
    assert says in str(refused.value)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(RequestError) as refused:
        LaunchSpec.parse({"nodes": 0, "time_limit": "soon", "slurm": {"qos": "a b"}})
    assert {problem.field for problem in refused.value.problems} == {
        "command",
        "nodes",
        "time_limit",
        "slurm.qos",
    }


@pytest.mark.parametrize("values", [TRAINING, CONTAINER, SWEEP])
def test_a_spec_survives_being_written_down(values: dict[str, Any]) -> None:
    asked = spec(values)
    assert LaunchSpec.model_validate_json(asked.model_dump_json()) == asked


@given(
    days=st.integers(0, 99), hours=st.integers(0, 99), minutes=st.integers(0, 59), seconds=st.integers(1, 59)
)
def test_times_are_read_as_a_clock(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert duration_s(f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}") == total
    assert duration_s(f"{total}s") == total


def test_units_and_times_of_yaml() -> None:
    assert [duration_s(text) for text in ("30m", "12h", "2d")] == [1800, 43200, 172800]
    # What YAML makes of 12:00:00.
    assert spec(TRAINING, time_limit=43200).time_limit_s == 43200
    assert [memory_mib(text) for text in ("512M", "64G", "2T")] == [512, 65536, 2097152]


def test_variables_of_the_network_and_the_users_win() -> None:
    asked = spec(CONTAINER, environment={"NCCL_DEBUG": "WARN", "THREADS": 4})
    assert asked.variables() == {
        "NCCL_SOCKET_IFNAME": "ens32",
        "GLOO_SOCKET_IFNAME": "ens32",
        "FI_PROVIDER": "efa",
        "FI_EFA_USE_DEVICE_RDMA": "1",
        "FI_EFA_USE_HUGE_PAGE": "0",
        "NCCL_DEBUG": "WARN",
        "THREADS": "4",
    }


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"gpus_per_node": 8}, 8),
        ({"gpus_per_node": 0}, 1),
        ({"gpus_per_node": 8, "processes_per_node": 2}, 2),
        ({"gpus_per_node": 8, "nodes": 1, "launcher": "plain"}, 1),
    ],
)
def test_a_process_for_each_gpu(changes: dict[str, Any], number: int) -> None:
    assert spec(TRAINING, **changes).processes_on_a_node == number


def test_a_mount_is_read_as_people_write_it() -> None:
    asked = spec(CONTAINER, mounts=["/a:/b", "/c:/d:ro", "pvc:claim:/e:ro"])
    assert [(mount.source, mount.target, mount.read_only, mount.claim) for mount in asked.mounts] == [
        ("/a", "/b", False, None),
        ("/c", "/d", True, None),
        ("pvc:claim", "/e", True, "claim"),
    ]
    assert [str(mount) for mount in asked.mounts] == ["/a:/b", "/c:/d:ro", "pvc:claim:/e:ro"]
