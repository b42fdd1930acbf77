"""The file for Ray says what the spec says, and what a cluster answers is understood. Starts no cluster.

The golden file is made anew by: PYTHONPATH=src python -m tests.unit.launch.test_ray_file
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.core.errors import Problem, RequestError
from calotype.launch.backend import JobRecord, JobState, LaunchError, LogsWanted
from calotype.launch.ray import RayBackend
from calotype.launch.ray import client as client_module
from calotype.launch.ray.client import RayJobs
from calotype.launch.ray.preflight import problems_with
from calotype.launch.ray.render import FILE
from calotype.launch.submit import submit
from tests.unit.launch.specs import SWEEP, TRAINING, spec

GOLDEN = Path(__file__).parent / "golden" / "training.ray"
ADDRESS = "http://head:8265"
ALONE: dict[str, Any] = {**SWEEP, "array_at_once": None}


def rendered(values: dict[str, Any], **changes: Any) -> str:
    return RayBackend().render(spec(values, **changes)).files[FILE]


def values_in(text: str) -> dict[str, Any]:
    """The constants at the top, as Python itself reads them."""
    found = {}
    for node in ast.parse(text).body:
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name) and node.value:
            try:
                found[target.id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def test_the_file_is_as_it_was_read_last() -> None:
    assert rendered(TRAINING) == GOLDEN.read_text()


def test_the_file_says_what_the_spec_says() -> None:
    found = values_in(rendered(TRAINING, ray={"resources": {"accelerator_type:H100": 0.001}}))
    assert found["NEEDS"] == {"CPU": 96, "GPU": 8, "memory": 2**40, "accelerator_type:H100": 0.001}
    assert (found["NODES"], found["TIME_LIMIT_S"], found["GRACE_S"]) == (16, 2 * 86400, 120)
    assert found["TORCHRUN"][1:5] == ["-m", "torch.distributed.run", "--nnodes=16", "--nproc-per-node=8"]
    assert found["COMMAND"][:4] == ["-m", "calotype", "train", "sd2-base"]
    sweep = rendered(ALONE)
    assert values_in(sweep)["COMMAND"][-1] == "--part={task}/3"
    assert sweep.splitlines()[2].endswith("-- /fsx/calotype/bin/python job.py TASK")


_ANY = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs", "Cf"], exclude_characters="\ufeff"), max_size=200
)


@settings(max_examples=25, deadline=None)
@given(word=_ANY, value=_ANY)
def test_values_arrive_as_they_were_written(word: str, value: str) -> None:
    folder = f"/data/{'long ' * 20}{value}"
    more: dict[str, Any] = {"environment": {"A": value}, "setup": ["module x"], "directory": folder}
    text = rendered(ALONE, array=None, command=["train", word], **more)
    found = values_in(text)
    assert found["DIRECTORY"] == folder
    assert found["COMMAND"][-2:] == ["train", word]
    assert found["COMMAND"][:2] == ["bash", "-c"]
    assert found["ENVIRONMENT"]["A"] == value
    assert shlex.split(text.splitlines()[0].removeprefix("# "))[-1] == word


NODES = [{"CPU": 96.0, "GPU": 8.0, "memory": 2.0**40, "mig-2g.20gb": 2.0}] * 2 + [{"CPU": 192.0}]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"nodes": 2}, []),
        ({"nodes": 3}, ["nodes"]),
        ({"nodes": 3, "gpus_per_node": 0, "memory_per_node": None}, []),
        ({"nodes": 1, "gpus_per_node": 9}, ["gpus_per_node"]),
        ({"nodes": 1, "cpus_per_node": 193, "memory_per_node": "2T"}, ["cpus_per_node", "memory_per_node"]),
        ({"nodes": 1, "cpus_per_node": 128}, ["nodes"]),
        ({"nodes": 1, "ray": {"resources": {"mig-2g.20gb": 2}}}, []),
        ({"nodes": 1, "ray": {"resources": {"mig-2g.20bg": 1}}}, ["ray.resources"]),
        ({"nodes": 300, "ray": {"grows": True}}, []),
    ],
)
def test_what_no_node_has_is_known(changes: dict[str, Any], refused: list[str]) -> None:
    found = problems_with(spec(TRAINING, **changes), NODES)
    assert [problem.field for problem in found] == refused


def test_a_name_that_is_nearly_right_is_told() -> None:
    (problem,) = problems_with(spec(TRAINING, nodes=1, ray={"resources": {"mig-2g.20bg": 1}}), NODES)
    assert "did you mean 'mig-2g.20gb'" in str(problem)


@pytest.mark.parametrize("address", ["head:8265", "http://head:8265\nx", "ftp://head"])
def test_an_address_is_a_dashboards(address: str) -> None:
    with pytest.raises(RequestError, match=r"ray\.address"):
        spec(TRAINING, ray={"address": address})


class Client:
    """Ray's client at a cluster that loses answers."""

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}
        self.stopped: list[str] = []
        self.losing: list[str] = []
        """What becomes of the next questions: `answer` is lost, or the whole `question`."""
        self.full_at = 99
        self.printed: str | None = None

    def get_address(self) -> str:
        return ADDRESS

    def _lose(self, what: str) -> None:
        if self.losing[:1] == [what]:
            self.losing.pop(0)
            raise requests.exceptions.ConnectionError("connection reset")

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: dict[str, Any]) -> str:
        self._lose("question")
        if len(self.jobs) >= self.full_at:
            raise RuntimeError("Request failed with status code 500: no more")
        state = SimpleNamespace(value="RUNNING")
        there = (entrypoint, sorted(each.name for each in Path(runtime_env["working_dir"]).iterdir()))
        self.jobs[submission_id] = SimpleNamespace(
            status=state, job_id=None, driver_exit_code=None, message="", there=there
        )
        self._lose("answer")
        return submission_id

    def get_job_info(self, job: str) -> Any:
        if job not in self.jobs:
            raise RuntimeError(f"Request failed with status code 404: Job {job} does not exist.")
        return self.jobs[job]

    def stop_job(self, job: str) -> bool:
        self.get_job_info(job)
        self.stopped.append(job)
        return True

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        self.get_job_info(job)
        yield "one\ntw"
        if self.losing:
            self.losing.pop(0)
            raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")
        yield "o\nthree\n"

    def get_job_logs(self, job: str) -> str:
        self.get_job_info(job)
        return "one\ntwo\nthree\n" if self.printed is None else self.printed


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Client:
    found = Client()
    monkeypatch.setattr(client_module, "_connect", lambda _: found)
    monkeypatch.setattr(RayJobs, "nodes", lambda _: [SimpleNamespace(resources_total=each) for each in NODES])
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return found


def handed_in(values: dict[str, Any], **changes: Any) -> JobRecord:
    chosen = {"work_folder": "launches/{name}", "nodes": 1, **changes}
    return submit(RayBackend(), spec(values, **chosen))[0]


def test_a_lost_answer_is_no_second_job_and_a_lost_question_is_none(client: Client) -> None:
    client.losing = ["answer"]
    record = handed_in(TRAINING)
    (name,) = client.jobs
    assert record.handle == f"{ADDRESS} {name}"
    assert client.jobs[name].there == ("/fsx/calotype/bin/python job.py", ["job.py", "submission"])
    client.losing = ["question"]
    with pytest.raises(LaunchError, match=r"no Ray dashboard answers: connection reset"):
        handed_in(TRAINING)
    assert list(client.jobs) == [name]


def test_a_task_that_is_refused_leaves_no_others(client: Client) -> None:
    client.full_at = 2
    with pytest.raises(LaunchError, match="no more"):
        handed_in(ALONE)
    assert client.stopped == list(client.jobs)
    assert len(client.stopped) == 2


def test_a_lost_connection_loses_no_lines_and_repeats_none(client: Client) -> None:
    record = handed_in(TRAINING)
    client.losing = ["tail"]
    assert list(RayBackend().logs(record, LogsWanted(follow=True))) == ["one", "two", "three"]


def test_the_last_lines_are_the_last_whatever_characters_are_in_them(client: Client) -> None:
    record = handed_in(TRAINING)
    assert list(RayBackend().logs(record, LogsWanted(lines=1, follow=True))) == ["three"]
    # What is new while they are counted is told too.
    client.printed = "one\x0c1\u20282\ntwo\n"
    assert list(RayBackend().logs(record, LogsWanted(lines=1))) == ["two"]
    assert list(RayBackend().logs(record, LogsWanted(lines=1, follow=True))) == ["two", "three"]
    client.printed = ""
    assert list(RayBackend().logs(record, LogsWanted())) == []


@pytest.mark.parametrize(
    ("state", "code", "found"),
    [
        ("PENDING", None, JobState.PENDING),
        ("SUCCEEDED", 0, JobState.COMPLETED),
        ("FAILED", 3, JobState.FAILED),
        ("FAILED", 124, JobState.TIMED_OUT),
        ("STOPPED", None, JobState.CANCELLED),
    ],
)
def test_states_have_our_names(client: Client, state: str, code: int | None, found: JobState) -> None:
    record = handed_in(TRAINING)
    (job,) = client.jobs.values()
    job.status, job.driver_exit_code, job.message = SimpleNamespace(value=state), code, "no worker\nlog"
    assert RayBackend().status(record).state is found
    client.jobs.clear()
    assert RayBackend().status(record).state is JobState.LOST


def test_a_node_that_did_not_come_up_is_told_in_rays_words(client: Client) -> None:
    record = handed_in(TRAINING)
    (job,) = client.jobs.values()
    job.status, job.message = SimpleNamespace(value="FAILED"), "Job supervisor actor died\nlong log"
    assert RayBackend().status(record).reason == "Job supervisor actor died"


def test_another_cluster_is_not_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own client goes where this variable leads, whatever it is told."""
    monkeypatch.setenv("RAY_ADDRESS", "http://other:8265")
    with pytest.raises(LaunchError, match=r"RAY_ADDRESS points to http://head:8265, but the job's cluster"):
        RayJobs("http://third:8265")


def test_what_ray_cannot_do_is_all_told() -> None:
    with pytest.raises(RequestError) as refused:
        rendered(SWEEP, image="calotype:1", mounts=["/a:/b"], launcher="torchrun", nodes=2, min_nodes=1)
    problems: list[Problem] = list(refused.value.problems)
    assert [problem.field for problem in problems] == ["image", "mounts", "min_nodes", "array_at_once"]


if __name__ == "__main__":
    GOLDEN.write_text(rendered(TRAINING))
