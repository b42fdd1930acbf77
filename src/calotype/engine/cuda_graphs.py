"""The same kernels launched as one: a CUDA graph for each shape that is asked for. Knows nothing of networks.

A shape's first evaluation runs as it is, its second is recorded, the others are replays. Recording costs
about as much as an evaluation that is launched kernel by kernel, so no shape has to be known beforehand and
no request waits. Weights are read where they are: changing them in place needs no new recording.

Recordings keep the memory of what they record. Where somebody needs it they are let go and made again later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor

Function = Callable[..., Any]
"""Of tensors, to a tensor or several."""
Inputs = tuple[Tensor | None, ...]

MAX_GRAPHS = 24
"""Shapes that are kept; the one used least recently goes first."""


class GraphReplay(Protocol):
    """A function's kernels for inputs of one shape."""

    def replay(self, inputs: Inputs) -> Any: ...


class CudaGraphed:
    """A function of tensors on one GPU. Its answer is overwritten by the next call with the same shapes."""

    def __init__(
        self,
        function: Function,
        record: Callable[[Function, Inputs], GraphReplay] | None = None,
        changes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`changes` says how often the function's kernels have become others, and old recordings useless."""
        self._function, self._record = function, record or _Recorder()
        self._changes, self._changed = changes, changes()
        self._seen: set[Hashable] = set()
        self._recordings: OrderedDict[Hashable, GraphReplay] = OrderedDict()

    def __call__(self, *inputs: Tensor | None) -> Any:
        changed = self._changes()
        if changed != self._changed:
            self._changed = changed
            self._seen.clear()
            self._recordings.clear()
        key = tuple(None if each is None else (each.shape, each.stride(), each.dtype) for each in inputs)
        if key not in self._recordings:
            if key not in self._seen:
                # Libraries choose kernels and make room for themselves at the first call, which a recording
                # could not hold; one that failed may not have come so far.
                answer = self._function(*inputs)
                self._seen.add(key)
                return answer
            while len(self._recordings) >= MAX_GRAPHS:
                self._recordings.popitem(last=False)
            self._recordings[key] = self._record(self._function, inputs)
        self._recordings.move_to_end(key)
        return self._recordings[key].replay(inputs)

    def release(self) -> None:
        """Drop all recordings, and the memory they keep; each is made anew when its shape comes again."""
        self._recordings.clear()


class CudaGraphPool:
    """Whatever one engine has recorded. Calling it makes a function `CudaGraphed`."""

    def __init__(self) -> None:
        self._made: WeakSet[CudaGraphed] = WeakSet()

    def __call__(self, function: Function, changes: Callable[[], int] = lambda: 0) -> CudaGraphed:
        made = CudaGraphed(function, changes=changes)
        self._made.add(made)
        return made

    def release(self) -> None:
        for each in self._made:
            each.release()


class _Recorder:
    """Records CUDA graphs that share their memory: one runs at a time."""

    def __init__(self) -> None:
        self._made: WeakSet[_Graph] = WeakSet()

    def __call__(self, function: Function, inputs: Inputs) -> GraphReplay:
        # Of one that lives: memory of graphs that have all gone cannot be recorded into while an answer of
        # theirs is kept. Without any, torch begins anew.
        made = _Graph(function, inputs, next((each.pool for each in self._made), None))
        self._made.add(made)
        return made


class _Graph:
    """One graph with the places it reads from and writes to."""

    def __init__(self, function: Function, inputs: Inputs, pool: Any) -> None:
        self._inputs = [None if each is None else torch.empty_like(each) for each in inputs]
        self._fill(inputs)
        self._graph = torch.cuda.CUDAGraph()
        # A server's other threads may wait for pixels meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._output = function(*self._inputs)

    @property
    def pool(self) -> Any:
        """Its memory, for others to share."""
        return self._graph.pool()

    def replay(self, inputs: Inputs) -> Any:
        self._fill(inputs)
        self._graph.replay()
        return self._output

    def _fill(self, inputs: Inputs) -> None:
        for own, given in zip(self._inputs, inputs, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
