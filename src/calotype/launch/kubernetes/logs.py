"""What a job's pods print: as it stands, or followed until the job is over. Knows nothing of job kinds.

Followed lines carry the time at which the node wrote them. When a stream is lost, the pod is asked for what
came since, and lines that were seen are left out: none is lost and none is told twice.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from calotype.launch.kubernetes.client_protocol import Cluster, LostError, RefusedError
from calotype.launch.kubernetes.pod_watch import Pod, phase, watched

_PAUSE_S = 0.2
_NOT_THERE = (400, 404)
"""What is said of a container that has not begun, and of a pod that is gone."""
_OVER = ("Succeeded", "Failed")


def printed(cluster: Cluster, pod: Pod, container: str, lines: int | None) -> list[str]:
    """What a pod has printed so far; nothing if it has not begun."""
    tail = {} if lines is None else {"tailLines": lines}
    try:
        return list(cluster.lines(f"{_path(pod)}/log", {"container": container, **tail}))
    except RefusedError as error:
        if error.status in _NOT_THERE:
            return []
        raise


@dataclass
class Following:
    """Reads all wanted pods of a job at once."""

    cluster: Cluster
    namespace: str
    job: str
    container: str
    wanted: Callable[[Sequence[Pod]], Sequence[Pod]]
    is_over: Callable[[], bool]
    lines: int | None = None
    """Of each pod, only so many of the last before now."""

    def __post_init__(self) -> None:
        self._told: queue.Queue[str | Exception | None] = queue.Queue()
        self._streams: dict[str, threading.Thread] = {}

    def __iter__(self) -> Iterator[str]:
        self._start(self._look)
        while (told := self._told.get()) is not None:
            if isinstance(told, Exception):
                raise told
            yield told

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            # Whatever it is: who reads is not to wait for lines that never come.
            except Exception as error:
                self._told.put(error)

        # They only wait for the network: a process that wants to end does not wait for them.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _look(self) -> None:
        """Give every pod a stream once it has begun, until no more can come."""
        for pods in watched(self.cluster, self.namespace, self.job):
            mine = self.wanted(pods)
            for pod in mine:
                uid = pod["metadata"]["uid"]
                if uid not in self._streams and phase(pod) != "Pending":
                    self._streams[uid] = self._start(_Stream(self.cluster, pod, self.container, self))
            if all(phase(pod) in _OVER for pod in mine) and self.is_over():
                break
        for stream in self._streams.values():
            stream.join()
        self._told.put(None)

    def tell(self, line: str) -> None:
        self._told.put(line)


class _Stream:
    """One pod's lines, each once, through lost connections, until its log ends."""

    def __init__(self, cluster: Cluster, pod: Pod, container: str, reader: Following) -> None:
        self._cluster, self._pod, self._container, self._reader = cluster, pod, container, reader
        self._last, self._alike = "", 0
        """When the last line was written, and how many lines were at that very time."""

    def __call__(self) -> None:
        while True:
            try:
                self._read()
                # A server may end a stream in good order while the pod goes on.
                if phase(self._cluster.request("GET", _path(self._pod))) in _OVER:
                    return
            except LostError:
                pass
            except RefusedError as error:
                if error.status in _NOT_THERE:
                    return
                raise
            time.sleep(_PAUSE_S)

    def _read(self) -> None:
        query: dict[str, str | int] = {"container": self._container, "follow": "true", "timestamps": "true"}
        if self._last:
            query["sinceTime"] = f"{self._last[:19]}Z"
        elif self._reader.lines is not None:
            query["tailLines"] = self._reader.lines
        old, again = self._last, self._alike
        for line in self._cluster.lines(f"{_path(self._pod)}/log", query):
            stamp, _, text = line.partition(" ")
            at = _comparable(stamp)
            if at < old:
                continue
            if at == old and again:
                again -= 1
                continue
            self._alike = self._alike + 1 if at == self._last else 1
            self._last = at
            self._reader.tell(text)


def _comparable(stamp: str) -> str:
    """A time whose text sorts as the time does: some nodes leave out a fraction's last zeros."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<9}"


def _path(pod: Pod) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
