"""Reads the log files in a job's folder: whole, the last lines, one rank, or followed as they grow.

There is one file of the job's script, and one per node, in which every line carries its rank.
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
    """The selected lines; following ends when the job ends."""
    check_wanted(record, wanted)
    offsets: dict[Path, int] = {}
    selected = _filter_rank(_new_lines(record, wanted, offsets, partial=not wanted.follow), wanted)
    yield from deque(selected, wanted.lines) if wanted.lines is not None else selected
    if wanted.follow:
        yield from _filter_rank(_follow(record, wanted, offsets, is_over), wanted)


def check_wanted(record: JobRecord, wanted: LogsWanted) -> None:
    """Refuse ranks and tasks that the job does not have."""
    spec = record.spec
    if wanted.rank is not None and wanted.rank >= spec.num_processes:
        raise NotFoundError(f"no rank {wanted.rank}: {record.id} has {spec.num_processes}, from 0")
    if wanted.task is not None and wanted.task >= (spec.array or 0):
        has = f"{spec.array} tasks, from 0" if spec.array else "no array"
        raise NotFoundError(f"no task {wanted.task}: {record.id} has {has}")


def _filter_rank(lines: Iterable[str], wanted: LogsWanted) -> Iterator[str]:
    return iter(lines) if wanted.rank is None else of_rank(lines, wanted.rank)


def _files(record: JobRecord, wanted: LogsWanted) -> list[Path]:
    """Log files ordered by task, the script's before its nodes'; only node logs have ranks."""
    scripts = Path(record.folder).glob("*.log") if wanted.rank is None else ()
    named = [(name, file) for file in scripts if (name := _SCRIPT.fullmatch(file.name))]
    named += [(name, file) for file in record.logs.glob("*.log") if (name := _NODE.fullmatch(file.name))]
    ordered = [(int(name["task"] or 0), int(name.groupdict().get("node", -1)), file) for name, file in named]
    return [file for task, _, file in sorted(ordered) if wanted.task in (None, task)]


def _new_lines(
    record: JobRecord, wanted: LogsWanted, offsets: dict[Path, int], *, partial: bool
) -> Iterator[str]:
    """New lines of all files since the last read offsets; `half` includes a last line without line end.

    Line by line: a log may be larger than memory, and grow while it is read.
    """
    for file in _files(record, wanted):
        with file.open("rb") as stream:
            stream.seek(offsets.get(file, 0))
            for line in stream:
                if not partial and not line.endswith(b"\n"):
                    break
                offsets[file] = offsets.get(file, 0) + len(line)
                yield line.removesuffix(b"\n").decode("utf-8", errors="replace")


def _follow(
    record: JobRecord, wanted: LogsWanted, offsets: dict[Path, int], is_over: Callable[[], bool]
) -> Iterator[str]:
    """Follow all files, in whole lines."""
    while True:
        # Checked before the last read, so that no line written in between is missed.
        is_ended = is_over()
        yield from _new_lines(record, wanted, offsets, partial=is_ended)
        if is_ended:
            return
        time.sleep(_PAUSE_S)
