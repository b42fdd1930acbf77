"""When a shape is run, recorded and replayed. The recording itself needs a GPU: tests/gpu/engine.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from calotype.engine.cuda_graphs import MAX_GRAPHS, CudaGraphed, Function, GraphReplay, Inputs


class Tape:
    """Stands for a graph: notes what happens to it, and answers as the function would."""

    def __init__(self, function: Function, inputs: Inputs, events: list[str]) -> None:
        self._function, self._events = function, events
        assert inputs[0] is not None
        self._name = f"{inputs[0].numel()}"
        events.append(f"record {self._name}")

    def replay(self, inputs: Inputs) -> Tensor:
        self._events.append(f"replay {self._name}")
        return self._function(*inputs)


def noted() -> tuple[CudaGraphed, list[str]]:
    events: list[str] = []

    def doubled(x: Tensor, _: Tensor | None) -> Tensor:
        events.append(f"run {x.numel()}")
        return x * 2

    def record(function: Function, inputs: Inputs) -> GraphReplay:
        return Tape(function, inputs, events)

    return CudaGraphed(doubled, record), events


def test_a_shape_is_run_then_recorded_then_replayed() -> None:
    graphed, events = noted()
    for number in (1.0, 2.0, 3.0):
        assert torch.equal(graphed(torch.full((3,), number), None), torch.full((3,), 2 * number))
    assert events == ["run 3", "record 3", "replay 3", "run 3", "replay 3", "run 3"]


def test_another_layout_or_an_input_more_is_another_recording() -> None:
    graphed, events = noted()
    picture = torch.zeros(1, 2, 3, 4)
    for _ in range(2):
        graphed(picture, None)
        graphed(picture.contiguous(memory_format=torch.channels_last), None)
        graphed(picture, picture)
    assert events.count("record 24") == 3


def test_the_shape_used_least_recently_is_recorded_again() -> None:
    graphed, events = noted()
    for size in range(1, MAX_GRAPHS + 2):
        graphed(torch.zeros(size), None)
        graphed(torch.zeros(size), None)
        graphed(torch.zeros(1), None)
    graphed(torch.zeros(2), None)
    assert events.count("record 1") == 1
    assert events.count("record 2") == 2


def test_a_shape_that_found_no_room_is_run_before_it_is_recorded() -> None:
    """Nothing was chosen or compiled for it yet, and a recording cannot hold that."""
    events: list[str] = []
    room = False

    def function(x: Tensor) -> Tensor:
        events.append("run")
        if not room:
            raise torch.OutOfMemoryError("no room")
        return x

    graphed = CudaGraphed(function, lambda function, inputs: Tape(function, inputs, events))
    with pytest.raises(torch.OutOfMemoryError):
        graphed(torch.zeros(3))
    room = True
    graphed(torch.zeros(3))
    assert events == ["run", "run"]
    graphed(torch.zeros(3))
    assert events[2:] == ["record 3", "replay 3", "run"]


def test_recordings_that_were_let_go_are_made_again_at_the_next_call() -> None:
    graphed, events = noted()
    for _ in range(2):
        graphed(torch.zeros(3), None)
    graphed.release()
    assert torch.equal(graphed(torch.ones(3), None), torch.full((3,), 2.0))
    assert events.count("record 3") == 2


class Capture:
    """Stands for torch's graphs: notes whose memory each is recorded into."""

    pools: ClassVar[list[object]] = []

    def __init__(self) -> None:
        self._pool: object = object()

    def pool(self) -> object:
        return self._pool

    def replay(self) -> None:
        """What it would compute is there already."""


@contextmanager
def captured(graph: Capture, *, pool: object, capture_error_mode: str) -> Iterator[None]:
    assert capture_error_mode == "thread_local", "others wait for pixels meanwhile"
    Capture.pools.append(pool)
    graph._pool = pool or graph._pool
    yield


def test_graphs_share_memory_with_those_that_live_and_never_with_those_that_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch refuses to record into memory whose graphs have all gone while one of their answers is kept."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Capture)
    monkeypatch.setattr(torch.cuda, "graph", captured)
    monkeypatch.setattr(Capture, "pools", [])
    graphed = CudaGraphed(lambda x: x * 2)
    for size in (1, 1, 2, 2):
        kept = graphed(torch.zeros(size))
    graphed.release()
    for size in (1, 2):
        graphed(torch.zeros(size))
    assert kept.shape == (2,)
    first, second, third, fourth = Capture.pools
    assert first is third is None
    assert second is not None
    assert fourth is not None
    assert fourth is not second


def test_kernels_that_became_others_are_recorded_anew() -> None:
    events: list[str] = []
    changes = 0

    def function(x: Tensor) -> Tensor:
        events.append(f"run {changes}")
        return x + changes

    def record(function: Function, inputs: Inputs) -> GraphReplay:
        return Tape(function, inputs, events)

    graphed = CudaGraphed(function, record, changes=lambda: changes)
    for _ in range(2):
        graphed(torch.zeros(3))
    changes = 1
    assert torch.equal(graphed(torch.zeros(3)), torch.ones(3))
    graphed(torch.zeros(3))
    assert events == ["run 0", "record 3", "replay 3", "run 0", "run 1", "record 3", "replay 3", "run 1"]
