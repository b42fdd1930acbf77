"""Reads the logs of a job's pods: as they are now, or followed until the job ends.

Followed lines carry the node's timestamps. After a lost stream, the log is read again from the last
timestamp, and lines that were already seen are skipped: no line is lost or repeated.
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
_NOT_AVAILABLE = (400, 404)
"""Answers for a container that has not started, and for a pod that is gone."""
_ENDED = ("Succeeded", "Failed")


def printed(cluster: Cluster, pod: Pod, container: str, lines: int | None) -> list[str]:
    """A pod's log so far; empty if it has not started."""
    tail = {} if lines is None else {"tailLines": lines}
    try:
        return list(cluster.lines(f"{_path(pod)}/log", {"container": container, **tail}))
    except RefusedError as error:
        if error.status in _NOT_AVAILABLE:
            return []
        raise


@dataclass
class Following:
    """Follows the logs of all selected pods of a job at once."""

    cluster: Cluster
    namespace: str
    job: str
    container: str
    wanted: Callable[[Sequence[Pod]], Sequence[Pod]]
    is_over: Callable[[], bool]
    lines: int | None = None
    """Only the last lines of each pod before now, so many."""

    def __post_init__(self) -> None:
        self._queue: queue.Queue[str | Exception | None] = queue.Queue()
        self._streams: dict[str, threading.Thread] = {}

    def __iter__(self) -> Iterator[str]:
        self._start(self._watch_pods)
        while (item := self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            # Any error: the reader must not wait for lines that never come.
            except Exception as error:
                self._queue.put(error)

        # Daemons, because they only wait for the network: they must not delay the end of the process.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _watch_pods(self) -> None:
        """Start a stream for every pod that runs, until no more pods can start."""
        for pods in watched(self.cluster, self.namespace, self.job):
            selected = self.wanted(pods)
            for pod in selected:
                uid = pod["metadata"]["uid"]
                if uid not in self._streams and phase(pod) != "Pending":
                    self._streams[uid] = self._start(_Stream(self.cluster, pod, self.container, self))
            if all(phase(pod) in _ENDED for pod in selected) and self.is_over():
                break
        for stream in self._streams.values():
            stream.join()
        self._queue.put(None)

    def put_line(self, line: str) -> None:
        self._queue.put(line)


class _Stream:
    """Reads one pod's log, each line once, across lost connections, until its end."""

    def __init__(self, cluster: Cluster, pod: Pod, container: str, reader: Following) -> None:
        self._cluster, self._pod, self._container, self._reader = cluster, pod, container, reader
        self._last, self._num_at_last = "", 0
        """Timestamp of the last line, and number of lines with exactly that timestamp."""

    def __call__(self) -> None:
        while True:
            try:
                self._read()
                # A server may end a stream cleanly while the pod still runs.
                if phase(self._cluster.request("GET", _path(self._pod))) in _ENDED:
                    return
            except LostError:
                pass
            except RefusedError as error:
                if error.status in _NOT_AVAILABLE:
                    return
                raise
            time.sleep(_PAUSE_S)

    def _read(self) -> None:
        query: dict[str, str | int] = {"container": self._container, "follow": "true", "timestamps": "true"}
        if self._last:
            query["sinceTime"] = f"{self._last[:19]}Z"
        elif self._reader.lines is not None:
            query["tailLines"] = self._reader.lines
        old, skip = self._last, self._num_at_last
        for line in self._cluster.lines(f"{_path(self._pod)}/log", query):
            stamp, _, text = line.partition(" ")
            at = _comparable(stamp)
            if at < old:
                continue
            if at == old and skip:
                skip -= 1
                continue
            self._num_at_last = self._num_at_last + 1 if at == self._last else 1
            self._last = at
            self._reader.put_line(text)


def _comparable(stamp: str) -> str:
    """A timestamp that sorts as text: some nodes omit trailing zeros of the fraction."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<9}"


def _path(pod: Pod) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
