"""What jobs printed, in files under their folder: whole, the last lines, one rank's, or as they grow.

One file of the job's script, and one for each node, in which every line carries its rank. Knows nothing of
back ends but a way to ask whether the job is over.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from calotype.core.errors import NotFoundError
from calotype.launch.backend import SCRIPT_LOG, JobRecord, LogsWanted
from calotype.launch.torchrun import of_rank

_PAUSE_S = 0.2
_SCRIPT = re.compile(rf"{re.escape(SCRIPT_LOG)}|task-(?P<task>\d+)\.log")
_NODE = re.compile(r"(?:task-(?P<task>\d+)-)?node-(?P<node>\d+)\.log")


def lines_of(record: JobRecord, wanted: LogsWanted, is_over: Callable[[], bool]) -> Iterator[str]:
    """The lines that are wanted; following ends when the job is over."""
    check_wanted(record, wanted)
    places: dict[Path, int] = {}
    kept = _chosen(_new_lines(record, wanted, places, half=not wanted.follow), wanted)
    yield from deque(kept, wanted.lines) if wanted.lines is not None else kept
    if wanted.follow:
        yield from _chosen(_grown(record, wanted, places, is_over), wanted)


def check_wanted(record: JobRecord, wanted: LogsWanted) -> None:
    """Refuse ranks and tasks that the job does not have."""
    spec = record.spec
    if wanted.rank is not None and wanted.rank >= spec.num_processes:
        raise NotFoundError(f"no rank {wanted.rank}: {record.id} has {spec.num_processes}, from 0")
    if wanted.task is not None and wanted.task >= (spec.array or 0):
        has = f"{spec.array} tasks, from 0" if spec.array else "no array"
        raise NotFoundError(f"no task {wanted.task}: {record.id} has {has}")


def _chosen(lines: Iterable[str], wanted: LogsWanted) -> Iterator[str]:
    return iter(lines) if wanted.rank is None else of_rank(lines, wanted.rank)


def _files(record: JobRecord, wanted: LogsWanted) -> list[Path]:
    """By task, the script's before those of its nodes, which alone have ranks."""
    scripts = Path(record.folder).glob("*.log") if wanted.rank is None else ()
    named = [(name, file) for file in scripts if (name := _SCRIPT.fullmatch(file.name))]
    named += [(name, file) for file in record.logs.glob("*.log") if (name := _NODE.fullmatch(file.name))]
    placed = [(int(name["task"] or 0), int(name.groupdict().get("node", -1)), file) for name, file in named]
    return [file for task, _, file in sorted(placed) if wanted.task in (None, task)]


def _new_lines(
    record: JobRecord, wanted: LogsWanted, places: dict[Path, int], *, half: bool
) -> Iterator[str]:
    """Of all files, from the places on up to which they are read; `half` takes in a last line without end.

    Line by line: a log may be larger than memory, and grow while it is read.
    """
    for file in _files(record, wanted):
        with file.open("rb") as stream:
            stream.seek(places.get(file, 0))
            for line in stream:
                if not half and not line.endswith(b"\n"):
                    break
                places[file] = places.get(file, 0) + len(line)
                yield line.removesuffix(b"\n").decode("utf-8", errors="replace")


def _grown(
    record: JobRecord, wanted: LogsWanted, places: dict[Path, int], is_over: Callable[[], bool]
) -> Iterator[str]:
    """New lines of all files as they come, each whole."""
    while True:
        # Asked before the last look, so that nothing written in between is missed.
        over = is_over()
        yield from _new_lines(record, wanted, places, half=over)
        if over:
            return
        time.sleep(_PAUSE_S)
