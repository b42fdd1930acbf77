"""Ways to do the same, tried in other processes: one that waits for itself for ever is given up with its own.

Knows nothing of what the ways do.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

LONGEST_SILENCE = 25.0
"""Seconds for one way at one shape, with the start of a process and the compiler."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


WayT = TypeVar("WayT", bound=Named)
ShapeT = TypeVar("ShapeT", bound=Hashable)
Find = Callable[[WayT, ShapeT, torch.device, torch.dtype], float]
"""Microseconds of a way at a shape; raises where it is wrong."""
Rate = Callable[[ShapeT, float], str]
"""How fast so many microseconds at a shape are, in words."""


@dataclass
class Row:
    """One way: microseconds by shape, or what was wrong there."""

    times: dict[Hashable, float] = field(default_factory=dict)
    complaints: dict[Hashable, str] = field(default_factory=dict)

    def milliseconds(self, counts: Mapping[ShapeT, int]) -> float | None:
        """Of so many of each, if it can do all of them."""
        if not all(shape in self.times for shape in counts):
            return None
        return sum(count * self.times[shape] for shape, count in counts.items()) / 1e3

    def as_dict(self) -> dict[str, dict[str, float] | dict[str, str]]:
        """By the shapes' names."""
        return {
            "microseconds": {str(shape): round(time, 2) for shape, time in self.times.items()},
            "complaints": {str(shape): words for shape, words in self.complaints.items()},
        }


Rows = dict[str, Row]


class _Found(NamedTuple):
    way: str
    shape: Hashable
    time: float
    complaint: str


def fill(
    rows: Rows,
    find: Find[WayT, ShapeT],
    asked: Sequence[tuple[WayT, ShapeT]],
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Fills the rows with what is found as long as something is, and says of the rest that it was not."""
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe(duplex=False)
    child = processes.Process(target=_find_all, args=(find, asked, device, dtype, there), daemon=True)
    child.start()
    there.close()
    try:
        while here.poll(LONGEST_SILENCE):
            found: _Found = here.recv()
            if found.complaint:
                rows[found.way].complaints[found.shape] = found.complaint
            else:
                rows[found.way].times[found.shape] = found.time
    except EOFError:
        pass  # it has said all, or has died
    child.kill()
    child.join()
    for way, shape in asked:
        if shape not in rows[way.name].times:
            rows[way.name].complaints.setdefault(shape, "no answer: it hung or died, or one before it did")


@torch.inference_mode()
def _find_all(
    find: Find[WayT, ShapeT],
    asked: Sequence[tuple[WayT, ShapeT]],
    device: torch.device,
    dtype: torch.dtype,
    connection: Connection,
) -> None:
    """In a process of its own. A compiler that fails writes the whole kernel to stderr: not here."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    for way, shape in asked:
        time, complaint = 0.0, ""
        try:
            time = find(way, shape, device, dtype)
        except Exception as error:
            complaint = f"{type(error).__name__}: {' '.join(str(error).split())[:90]}"
        connection.send(_Found(way.name, shape, time, complaint))
    connection.close()


def fastest(rows: Rows, shape: Hashable) -> str:
    """The name of the way that took least."""
    times = {name: row.times[shape] for name, row in rows.items() if shape in row.times}
    return min(times, key=times.__getitem__, default="none")


def show_complaints(rows: Rows) -> None:
    for name, row in rows.items():
        for words in sorted(set(row.complaints.values())):
            print(f"{name}: {words}", flush=True)


Totals = Mapping[str, Mapping[ShapeT, int]]
"""Of an evaluation, by the name of its model: how often it does each shape."""


def show_table(rows: Rows, shapes: Mapping[ShapeT, int], totals: Totals[ShapeT], rate: Rate[ShapeT]) -> None:
    """How fast each way is at each shape and milliseconds of evaluations; the fastest; complaints."""
    heads = "".join(f"{f'{count}× {shape}':>23}" for shape, count in shapes.items())
    print(f"{'':28}{heads}" + "".join(f"{f'{name} ms':>11}" for name in totals))
    for name, row in rows.items():
        cells = "".join(f"{_cell(row, shape, rate):>23}" for shape in shapes)
        found = (row.milliseconds(counts) for counts in totals.values())
        print(f"{name:28}{cells}" + "".join(f"{'' if ms is None else f'{ms:.2f}':>11}" for ms in found))
    print(f"{'fastest':28}" + "".join(f"{fastest(rows, shape):>23}" for shape in shapes))
    show_complaints(rows)


def _cell(row: Row, shape: ShapeT, rate: Rate[ShapeT]) -> str:
    if shape in row.complaints:
        return "failed"
    return rate(shape, row.times[shape]) if shape in row.times else ""


def as_json(rows: Rows, totals: Totals[ShapeT]) -> dict[str, Any]:
    """The same as JSON takes it."""
    return {
        name: {
            **row.as_dict(),
            **{f"{model}_milliseconds": row.milliseconds(counts) for model, counts in totals.items()},
        }
        for name, row in rows.items()
    }
