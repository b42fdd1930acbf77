"""Jobs on an API server: handed in, watched, read and ended, while things go wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import NotFoundError, RequestError
from calotype.launch.backend import JobRecord, JobState, LaunchError, LogsWanted
from calotype.launch.kubernetes import KubernetesBackend
from calotype.launch.kubernetes.client_protocol import RefusedError
from calotype.launch.submit import status_of, submit
from tests.unit.launch.kubernetes.fake_api import FakeApi, Fault, running_api
from tests.unit.launch.kubernetes.specs import a_job

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A cluster of one P5 node that KUBECONFIG leads to."""
    api = FakeApi()
    gpus = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "cpu": "191450m"}
    marks = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    api.put("/api/v1/nodes", {"metadata": {"name": "p5-a", "labels": marks}, "status": {"allocatable": gpus}})
    with running_api(api) as config:
        (tmp_path / "config").write_text(config)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
        monkeypatch.chdir(tmp_path)
        yield api


def handed_in(**changes: Any) -> JobRecord:
    return submit(KubernetesBackend(), a_job(**changes))[0]


def put_pod(
    api: FakeApi, name: str, phase: str, index: int = 0, task: int | None = None, **status: Any
) -> None:
    """As the job's controller and a kubelet would."""
    marks = {"app.kubernetes.io/instance": "sd2-1", "batch.kubernetes.io/job-completion-index": str(index)}
    marks |= {} if task is None else {"calotype/task": str(task)}
    old = api.objects[PODS].get(name, {"metadata": {}})["metadata"]
    meta = {**old, "name": name, "namespace": "default", "labels": marks}
    spec = {} if phase == "Pending" else {"nodeName": f"p5-{index}"}
    api.put(PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase, **status}})


def end_job(api: FakeApi, kind: str, name: str = "sd2-1", **said: str) -> None:
    job = api.objects[JOBS][name]
    api.put(JOBS, {**job, "status": {"conditions": [{"type": kind, "status": "True", **said}]}})


def test_a_job_from_submission_to_its_end(api: FakeApi) -> None:
    record = handed_in()
    backend = KubernetesBackend()
    assert record.handle.startswith("default/sd2-1:")
    made = api.objects[JOBS]["sd2-1"]
    assert made["spec"]["trainer"]["numNodes"] == 2
    assert "--rdzv-id=sd2-1" in (Path(record.folder) / "job.yaml").read_text()

    assert status_of(backend, record).state is JobState.PENDING
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    why = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
    put_pod(api, "sd2-1-node-0-0", "Pending", conditions=[{**waiting, "message": why}])
    assert status_of(backend, record).reason == f"Unschedulable: {why}"

    put_pod(api, "sd2-1-node-0-0", "Running")
    put_pod(api, "sd2-1-node-0-1", "Running", 1)
    running = status_of(backend, record)
    assert (running.state, running.nodes) == (JobState.RUNNING, ("p5-0", "p5-1"))

    done = [{"name": "node", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}}]
    put_pod(api, "sd2-1-node-0-0", "Succeeded", containerStatuses=done)
    end_job(api, "Complete", reason="JobsCompleted")
    ended = status_of(backend, record)
    assert (ended.state, ended.exit_code, ended.restarts) == (JobState.COMPLETED, 0, 1)


@pytest.mark.parametrize(
    ("kind", "said", "state"),
    [
        (
            "Failed",
            {"reason": "JobsFailed", "message": "jobset failed due to one or more job failures"},
            JobState.FAILED,
        ),
        ("Failed", {"reason": "DeadlineExceeded", "message": "active longer"}, JobState.TIMED_OUT),
        ("Suspended", {"reason": "Suspended", "message": "waits for quota"}, JobState.PENDING),
    ],
)
def test_conditions_are_states(api: FakeApi, kind: str, said: dict[str, str], state: JobState) -> None:
    record = handed_in()
    end_job(api, kind, **said)
    status = KubernetesBackend().status(record)
    assert (status.state, status.reason) == (state, said["message"])


def test_pytorch_jobs_are_followed_by_their_own_conditions(api: FakeApi) -> None:
    record = handed_in(kubernetes={"kind": "PyTorchJob"})
    path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    job = api.objects[path]["sd2-1"]
    gone = {"type": "Running", "status": "False"}
    deadline = "PyTorchJob sd2-1 has failed because it was active longer than specified deadline"
    late = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": deadline}
    for conditions, state in (
        ([gone, {"type": "Succeeded", "status": "True"}], JobState.COMPLETED),
        ([gone, late], JobState.TIMED_OUT),
    ):
        api.put(path, {**job, "status": {"conditions": conditions}})
        assert KubernetesBackend().status(record).state is state


def test_a_job_that_is_cancelled_is_deleted_and_said_to_be(api: FakeApi) -> None:
    record = handed_in()
    backend = KubernetesBackend()
    backend.cancel(record)
    assert not api.objects[JOBS]
    assert backend.status(record).state is JobState.CANCELLED
    backend.cancel(record)


def test_a_job_that_somebody_else_deleted_is_lost(api: FakeApi) -> None:
    record = handed_in()
    api.remove(JOBS, "sd2-1")
    assert KubernetesBackend().status(record).state is JobState.LOST


def test_another_job_of_the_same_name_is_neither_ours_nor_touched(api: FakeApi) -> None:
    record = handed_in()
    api.remove(JOBS, "sd2-1")
    api.put(JOBS, {"metadata": {"name": "sd2-1", "labels": {"app.kubernetes.io/instance": "sd2-1"}}})
    KubernetesBackend().cancel(record)
    assert "sd2-1" in api.objects[JOBS]
    assert KubernetesBackend().status(record).state is JobState.LOST


@pytest.mark.parametrize(
    ("arrange", "told"),
    [
        (lambda api: api.quota.update(default=8), "kubernetes.namespace: its quota is exhausted"),
        (lambda api: api.kinds.discard("trainjobs"), "kubernetes.kind: this cluster does not know TrainJob"),
        (lambda api: api.namespaces.clear(), "kubernetes.namespace: there is no namespace 'default'"),
        (
            lambda api: api.put("/api/v1/nodes", _node("p5-a", {"nvidia.com/gpu": "4"})),
            "gpus_per_node: 8 × nvidia.com/gpu are more than any node has; ask for at most 4",
        ),
        (
            lambda api: api.put("/api/v1/nodes", _node("p5-a", {"nvidia.com/mig-2g.20gb": "24"})),
            "gpus_per_node: no node offers nvidia.com/gpu; .*nvidia.com/mig-2g.20gb",
        ),
    ],
)
def test_what_the_cluster_would_refuse_is_said_before_anything_is_handed_in(
    api: FakeApi, arrange: Any, told: str
) -> None:
    arrange(api)
    with pytest.raises(RequestError, match=told):
        handed_in()
    assert not api.objects[JOBS]


def _node(name: str, has: dict[str, str]) -> dict[str, Any]:
    marks = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    return {"metadata": {"name": name, "labels": marks}, "status": {"allocatable": has}}


def test_a_node_is_asked_how_many_gpus_it_has(api: FakeApi) -> None:
    backend = KubernetesBackend()
    assert backend.gpus_of_a_node(a_job()) == 8
    elsewhere = a_job(kubernetes={"instance_type": "p4d.24xlarge"}, network={"efa_devices": 4})
    assert backend.gpus_of_a_node(elsewhere) == 8
    with pytest.raises(RequestError, match="gpus_per_node: no node can be inspected"):
        backend.gpus_of_a_node(a_job(kubernetes={"instance_type": "g6.xlarge"}))


def test_who_may_not_list_nodes_may_still_hand_in(api: FakeApi) -> None:
    api.fault(
        "GET", "/api/v1/nodes", Fault(403, "Forbidden", 'nodes is forbidden: User "someone" cannot list')
    )
    assert handed_in().id == "sd2-1"


def test_who_may_not_hand_in_is_told_the_servers_words(api: FakeApi) -> None:
    about = 'trainjobs is forbidden: User "someone" cannot create resource "trainjobs"'
    api.fault("POST", "trainjobs", Fault(403, "Forbidden", about))
    with pytest.raises(RefusedError, match=r"403 Forbidden.*cannot create resource"):
        handed_in()


@pytest.mark.parametrize("first", [None, Fault(0, after=True)], ids=["answered", "lost"])
def test_a_quota_that_filled_up_since_the_check_refuses_all_tasks(api: FakeApi, first: Fault | None) -> None:
    quota = Fault(403, "Forbidden", "sd2-1-1 is forbidden: exceeded quota: team")
    api.faults["POST trainjobs\\?fieldValidation"] = [first, quota]
    with pytest.raises(LaunchError, match="exceeded quota"):
        handed_in(array=3)
    assert not api.objects[JOBS]


def test_a_name_that_is_taken_is_refused(api: FakeApi) -> None:
    api.put(JOBS, {"metadata": {"name": "sd2-1", "labels": {}}})
    with pytest.raises(LaunchError, match="default already has another job 'sd2-1'"):
        handed_in()


def test_a_submission_whose_answer_was_lost_is_handed_in_once(api: FakeApi) -> None:
    api.fault("POST", r"trainjobs\?fieldValidation", Fault(0, after=True))
    record = handed_in()
    assert list(api.objects[JOBS]) == ["sd2-1"]
    assert KubernetesBackend().status(record).state is JobState.PENDING


def test_a_busy_server_is_asked_again(api: FakeApi) -> None:
    record = handed_in()
    busy = Fault(429, "TooManyRequests", "the server has received too many requests", {"Retry-After": "0"})
    api.fault("GET", "trainjobs", busy)
    api.fault("GET", "trainjobs", Fault(503, "ServiceUnavailable", "apiserver is shutting down"))
    before = len(api.requests)
    assert KubernetesBackend().status(record).state is JobState.PENDING
    assert sum("trainjobs" in each for each in api.requests[before:]) == 3


def test_a_server_that_stays_busy_is_named(api: FakeApi) -> None:
    record = handed_in()
    for _ in range(6):
        api.fault(
            "GET", "trainjobs", Fault(429, "TooManyRequests", "too many requests", {"Retry-After": "0"})
        )
    with pytest.raises(RefusedError, match="429 TooManyRequests"):
        KubernetesBackend().status(record)


def test_arrays_are_one_job_with_tasks(api: FakeApi) -> None:
    record = handed_in(array=3, command=["bench", "sweep", "{task}"])
    assert sorted(api.objects[JOBS]) == ["sd2-1-0", "sd2-1-1", "sd2-1-2"]
    end_job(api, "Complete", "sd2-1-0")
    put_pod(api, "sd2-1-1-node-0-0", "Running", task=1)
    api.say("sd2-1-1-node-0-0", "one")
    status = KubernetesBackend().status(record)
    assert [task.state.value for task in status.tasks] == ["completed", "running", "pending"]
    assert status.state is JobState.RUNNING
    assert list(KubernetesBackend().logs(record, LogsWanted(task=1))) == ["one"]
    assert list(KubernetesBackend().logs(record, LogsWanted(task=2))) == []
    with pytest.raises(NotFoundError, match="no task 3"):
        KubernetesBackend().logs(record, LogsWanted(task=3))
    KubernetesBackend().cancel(record)
    assert not api.objects[JOBS]


def test_logs_of_all_nodes_one_rank_or_the_last_lines(api: FakeApi) -> None:
    record = handed_in()
    backend = KubernetesBackend()
    assert list(backend.logs(record, LogsWanted())) == []
    put_pod(api, "sd2-1-node-0-1", "Running", 1)
    put_pod(api, "sd2-1-node-0-0", "Running", 0)
    put_pod(api, "sd2-1-node-0-2", "Pending", 2)
    api.say("sd2-1-node-0-0", "[rank0]: a", "[rank1]: b", "[rank0]: c", "[rank1]: d")
    api.say("sd2-1-node-0-1", "[rank8]: e")
    assert list(backend.logs(record, LogsWanted()))[-2:] == ["[rank1]: d", "[rank8]: e"]
    assert list(backend.logs(record, LogsWanted(rank=0))) == ["a", "c"]
    assert list(backend.logs(record, LogsWanted(rank=0, lines=1))) == ["c"]
    assert list(backend.logs(record, LogsWanted(lines=1))) == ["[rank8]: e"]
    with pytest.raises(NotFoundError, match="no rank 16: sd2-1 has 16, from 0"):
        backend.logs(record, LogsWanted(rank=16))


def test_following_hears_every_line_once_through_lost_watches_and_streams(api: FakeApi) -> None:
    record = handed_in()
    api.lost_watches, api.lost_logs = 2, 2
    pod = "sd2-1-node-0-0"
    lines = iter(KubernetesBackend().logs(record, LogsWanted(follow=True)))

    def cluster() -> None:
        # Two lines of one tenth of a second, and more than the first stream lives to tell.
        put_pod(api, pod, "Running")
        api.say(pod, *(f"line {number}" for number in range(25)))

    threading.Thread(target=cluster).start()
    heard = [next(lines) for _ in range(25)]
    # The version that a watch would go on from is forgotten meanwhile.
    api.oldest = api.version + 1
    api.say(pod, "the last")
    end_job(api, "Complete")
    api.oldest = 0
    put_pod(api, pod, "Succeeded")
    heard += list(lines)
    assert heard == [*(f"line {number}" for number in range(25)), "the last"]


def test_a_watch_from_a_forgotten_version_lists_again(api: FakeApi) -> None:
    from calotype.launch.kubernetes.client import OfficialClient
    from calotype.launch.kubernetes.pod_watch import watched

    handed_in()
    api.oldest = api.version + 10
    seen = watched(OfficialClient(), "default", "sd2-1")
    assert next(seen) == []
    put_pod(api, "sd2-1-node-0-0", "Running")
    assert [pod["metadata"]["name"] for pod in next(seen)] == ["sd2-1-node-0-0"]


def test_following_ends_with_an_error_that_waiting_cannot_cure(api: FakeApi) -> None:
    record = handed_in()
    api.fault("GET", "pods", Fault(403, "Forbidden", "pods is forbidden"))
    with pytest.raises(RefusedError, match="pods is forbidden"):
        list(KubernetesBackend().logs(record, LogsWanted(follow=True)))


def test_no_cluster_and_no_answer_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(LaunchError, match=r"no Kubernetes cluster is known: .*kubectl"):
        KubernetesBackend().check(a_job())
    for damaged in ("apiVersion: [", "no kubeconfig", "[1]", "contexts: 3\ncurrent-context: a\n"):
        (tmp_path / "nowhere").write_text(damaged)
        with pytest.raises(LaunchError, match=r"no Kubernetes cluster is known: .*kubectl"):
            KubernetesBackend().check(a_job())
