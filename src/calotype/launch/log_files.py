"""What jobs printed, in files under their folder: whole, the last lines, one rank's, or as they grow.

One file for each node, in which every line carries its rank. Knows nothing of back ends but a way to ask
whether the job is over.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from calotype.core.errors import NotFoundError
from calotype.launch.backend import JobRecord, LogsWanted
from calotype.launch.torchrun import of_rank

_PAUSE_S = 0.2
_NODE = re.compile(r"(?:task-(\d+)-)?node-(\d+)\.log")


def lines_of(record: JobRecord, wanted: LogsWanted, is_over: Callable[[], bool]) -> Iterator[str]:
    """The lines that are wanted; following ends when the job is over."""
    _check(record, wanted)
    kept = _chosen(_written(record, wanted), wanted)
    yield from deque(kept, wanted.lines) if wanted.lines is not None else kept
    if wanted.follow:
        yield from _chosen(_grown(record, wanted, is_over), wanted)


def _check(record: JobRecord, wanted: LogsWanted) -> None:
    spec = record.spec
    if wanted.rank is not None and wanted.rank >= spec.num_processes:
        raise NotFoundError(f"no rank {wanted.rank}: {record.id} has {spec.num_processes}, from 0")
    if wanted.task is not None and wanted.task >= (spec.array or 0):
        has = f"{spec.array} tasks, from 0" if spec.array else "no array"
        raise NotFoundError(f"no task {wanted.task}: {record.id} has {has}")


def _chosen(lines: Iterable[str], wanted: LogsWanted) -> Iterator[str]:
    return iter(lines) if wanted.rank is None else of_rank(lines, wanted.rank)


def _files(record: JobRecord, wanted: LogsWanted) -> list[Path]:
    found = []
    for file in record.logs.glob("*.log"):
        name = _NODE.fullmatch(file.name)
        if name and wanted.task in (None, int(name[1] or 0)):
            found.append((int(name[1] or 0), int(name[2]), file))
    return [file for *_, file in sorted(found)]


def _written(record: JobRecord, wanted: LogsWanted) -> Iterator[str]:
    for file in _files(record, wanted):
        yield from file.read_text("utf-8", errors="replace").splitlines()


def _grown(record: JobRecord, wanted: LogsWanted, is_over: Callable[[], bool]) -> Iterator[str]:
    """New lines of all files as they come, each whole."""
    places = {file: file.stat().st_size for file in _files(record, wanted)}
    rests: dict[Path, bytes] = {}
    while True:
        # Asked before the last look, so that nothing written in between is missed.
        over = is_over()
        for file in _files(record, wanted):
            with file.open("rb") as stream:
                stream.seek(places.get(file, 0))
                data = stream.read()
            places[file] = places.get(file, 0) + len(data)
            *whole, rests[file] = (rests.get(file, b"") + data).split(b"\n")
            yield from (line.decode("utf-8", errors="replace") for line in whole)
        if over:
            return
        time.sleep(_PAUSE_S)
