"""The backend `kubernetes`: creates objects that Kubeflow turns into pods, and reads their status."""

from __future__ import annotations

import contextlib
import shlex
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # it ships no types

from calotype.core.errors import Problem, RequestError
from calotype.launch.backend import (
    JobRecord,
    JobState,
    JobStatus,
    LaunchError,
    LogsWanted,
    Rendered,
    TaskStatus,
)
from calotype.launch.kubernetes.client_protocol import Cluster, LostError, RefusedError
from calotype.launch.kubernetes.job_kind import JobKind, Object
from calotype.launch.kubernetes.logs import Following, printed
from calotype.launch.kubernetes.pod_template import TASK
from calotype.launch.kubernetes.pod_watch import Pod, pods_of, selector
from calotype.launch.kubernetes.preflight import most_gpus, offline_problems, online_problems, refused
from calotype.launch.kubernetes.pytorch_job import PYTORCH_JOB
from calotype.launch.kubernetes.status import state_of
from calotype.launch.kubernetes.train_job import TRAIN_JOB
from calotype.launch.kubernetes.yaml import as_yaml
from calotype.launch.log_files import check_wanted
from calotype.launch.torchrun import of_rank
from calotype.spec.launch import LaunchSpec

FILE, CANCELLED = "job.yaml", "cancelled"
SUBMISSION = "calotype/submission"
"""An annotation that identifies our objects among others of the same name."""
KINDS = {kind.kind: kind for kind in (TRAIN_JOB, PYTORCH_JOB)}
_CONFLICT, _NOT_FOUND = 409, 404


class KubernetesBackend:
    """Runs jobs by a cluster's Kubeflow operators."""

    name = "kubernetes"

    def __init__(self, connect: Callable[[str | None], Cluster] | None = None) -> None:
        self._connect = connect or _connect

    def render(self, spec: LaunchSpec) -> Rendered:
        kind = KINDS[spec.kubernetes.kind]
        problems = offline_problems(spec, kind)
        if problems:
            raise RequestError(problems)
        heading = [
            shlex.join(["calotype", *spec.words()]),
            f"as {kind.kind} ({kind.group}/{kind.version}). Needs only Calotype's image: "
            f"kubectl create -f {FILE}",
        ]
        return Rendered({FILE: as_yaml(_manifests(spec), heading)})

    def check(self, spec: LaunchSpec) -> list[Problem]:
        kind = KINDS[spec.kubernetes.kind]
        return online_problems(self._cluster(spec), spec, kind, _manifests(spec)[0])

    def gpus_of_a_node(self, spec: LaunchSpec, /) -> int:
        return most_gpus(self._cluster(spec), spec)

    def submit(self, spec: LaunchSpec, folder: Path, rendered: Rendered, /) -> str:
        # The file, not the spec: users submit exactly what they can read.
        objects = list(yaml.safe_load_all((folder / rendered.main).read_text("utf-8")))
        cluster, mark = self._cluster(spec), uuid.uuid4().hex[:12]
        try:
            for each in objects:
                each["metadata"]["annotations"] = {SUBMISSION: mark}
                _create(cluster, KINDS[each["kind"]], each)
        except BaseException:
            # If one task is refused, no other task keeps running, nor one whose answer was lost.
            with contextlib.suppress(LaunchError):
                for each in _objects(cluster, spec, mark):
                    _delete(cluster, KINDS[each["kind"]], each)
            raise
        return f"{spec.kubernetes.namespace}/{spec.name}:{mark}"

    def status(self, record: JobRecord) -> JobStatus:
        cluster, kind = self._opened(record)
        objects = _objects(cluster, record.spec, _mark_of_record(record))
        if not objects:
            if (Path(record.folder) / CANCELLED).exists():
                return JobStatus(state=JobState.CANCELLED)
            return JobStatus(state=JobState.LOST, reason="the cluster no longer has this job")
        pods = pods_of(cluster, record.spec.kubernetes.namespace, record.id)
        if record.spec.array is None:
            return state_of(objects[0], pods, kind)
        found = {_task(each): each for each in objects}
        tasks, states = [], []
        for number in range(record.spec.array):
            if number not in found:
                tasks.append(TaskStatus(task=number, state=JobState.LOST))
                continue
            one = state_of(found[number], [pod for pod in pods if _task(pod) == number], kind)
            states.append(one)
            tasks.append(TaskStatus(task=number, state=one.state, reason=one.reason, exit_code=one.exit_code))
        nodes = [node for one in states for node in one.nodes]
        return JobStatus.of_tasks(tasks, restarts=sum(one.restarts for one in states), nodes=nodes)

    def logs(self, record: JobRecord, wanted: LogsWanted) -> Iterable[str]:
        check_wanted(record, wanted)
        lines = self._lines(record, wanted)
        selected = lines if wanted.rank is None else of_rank(lines, wanted.rank)
        if wanted.follow or wanted.lines is None:
            return selected
        return deque(selected, wanted.lines)

    def _lines(self, record: JobRecord, wanted: LogsWanted) -> Iterator[str]:
        cluster, kind = self._opened(record)
        namespace = record.spec.kubernetes.namespace

        def select_pods(pods: Sequence[Pod]) -> list[Pod]:
            selected = [pod for pod in pods if wanted.task is None or _task(pod) == wanted.task]
            return sorted(selected, key=lambda pod: (_task(pod) or 0, kind.pod_order(pod)))

        if not wanted.follow:
            # One rank's last lines may be far above a node's last lines.
            tail = wanted.lines if wanted.rank is None else None
            for pod in select_pods(pods_of(cluster, namespace, record.id)):
                yield from printed(cluster, pod, kind.container, tail)
            return
        yield from Following(
            cluster,
            namespace,
            record.id,
            kind.container,
            select_pods,
            lambda: self.status(record).state.is_over,
            wanted.lines,
        )

    def cancel(self, record: JobRecord) -> None:
        cluster, kind = self._opened(record)
        objects = _objects(cluster, record.spec, _mark_of_record(record))
        if objects:
            # Before the deletion: a job that ends in between counts as cancelled too.
            (Path(record.folder) / CANCELLED).touch()
        for each in objects:
            _delete(cluster, kind, each)

    def _opened(self, record: JobRecord) -> tuple[Cluster, JobKind]:
        return self._cluster(record.spec), KINDS[record.spec.kubernetes.kind]

    def _cluster(self, spec: LaunchSpec) -> Cluster:
        return self._connect(spec.kubernetes.context)


def _connect(context: str | None) -> Cluster:
    try:
        # A large import that rendering does not need.
        from calotype.launch.kubernetes.client import OfficialClient  # noqa: PLC0415
    except ImportError as error:
        rule = f"{error.name} is missing; pip install 'calotype[kubernetes]', or submit the file with kubectl"
        raise LaunchError(rule) from None
    return OfficialClient(context)


def _manifests(spec: LaunchSpec) -> list[dict[str, Any]]:
    kind = KINDS[spec.kubernetes.kind]
    tasks: list[int | None] = [None] if spec.array is None else list(range(spec.array))
    return [kind.manifest(spec, task) for task in tasks]


def _create(cluster: Cluster, kind: JobKind, manifest: dict[str, Any]) -> Object:
    """Create an object; one that an attempt with a lost answer created counts as created."""
    meta = manifest["metadata"]
    path = kind.path(meta["namespace"])
    for attempt in (1, 2):
        try:
            return cluster.request("POST", path, query={"fieldValidation": "Strict"}, body=manifest)
        except LostError:
            if attempt == 2:
                raise
        except RefusedError as error:
            if error.status == _CONFLICT:
                existing = cluster.request("GET", kind.path(meta["namespace"], meta["name"]))
                if _mark(existing) == _mark(manifest):
                    return existing
            raise refused(error, meta["name"], meta["namespace"]) from None
    raise AssertionError("the second attempt returns or raises")


def _delete(cluster: Cluster, kind: JobKind, each: Object) -> None:
    """Delete exactly this object with its pods; no effect if it is gone."""
    meta = each["metadata"]
    options = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
    try:
        cluster.request("DELETE", kind.path(meta["namespace"], meta["name"]), body=options)
    except RefusedError as error:
        # 409: another object of that name has replaced it.
        if error.status not in (_NOT_FOUND, _CONFLICT):
            raise


def _objects(cluster: Cluster, spec: LaunchSpec, mark: str) -> list[Object]:
    """The objects of a submission that still exist."""
    path = KINDS[spec.kubernetes.kind].path(spec.kubernetes.namespace)
    found = cluster.request("GET", path, query={"labelSelector": selector(spec.name)})
    return [each for each in found["items"] if _mark(each) == mark]


def _mark_of_record(record: JobRecord) -> str:
    return record.handle.rpartition(":")[2]


def _mark(each: Object) -> str | None:
    return each["metadata"].get("annotations", {}).get(SUBMISSION)


def _task(each: Object) -> int | None:
    number = each["metadata"].get("labels", {}).get(TASK)
    return None if number is None else int(number)
