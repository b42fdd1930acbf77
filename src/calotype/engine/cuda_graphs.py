"""Captures functions as CUDA graphs, one per shape, and replays them.

A shape's first evaluation runs eagerly, its second is captured, later ones are replays. A capture costs
about as much as an eager evaluation, so no shape has to be known beforehand and no request waits. Graphs read
weights in place: changing them in place needs no new capture.

Graphs keep the memory of their activations. When it is needed elsewhere, they are released and captured again
later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor

Function = Callable[..., Any]
"""From tensors to one or several tensors."""
Inputs = tuple[Tensor | None, ...]

MAX_GRAPHS = 24
"""Graphs kept per function; the least recently used is evicted first."""


class GraphReplay(Protocol):
    """A captured function for inputs of one shape."""

    def replay(self, inputs: Inputs) -> Any: ...


class CudaGraphed:
    """A function of tensors on one GPU. The next call with the same shapes overwrites its output."""

    def __init__(
        self,
        function: Function,
        capture: Callable[[Function, Inputs], GraphReplay] | None = None,
        changes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`changes` counts the changes of the function's kernels, each of which invalidates all graphs."""
        self._function, self._capture = function, capture or _Capturer()
        self._changes, self._changed = changes, changes()
        self._seen: set[Hashable] = set()
        self._graphs: OrderedDict[Hashable, GraphReplay] = OrderedDict()

    def __call__(self, *inputs: Tensor | None) -> Any:
        changed = self._changes()
        if changed != self._changed:
            self._changed = changed
            self._seen.clear()
            self._graphs.clear()
        key = tuple(None if each is None else (each.shape, each.stride(), each.dtype) for each in inputs)
        if key not in self._graphs:
            if key not in self._seen:
                # At the first call libraries choose kernels and allocate workspace, which a capture cannot
                # contain; a call that failed may not have completed that.
                output = self._function(*inputs)
                self._seen.add(key)
                return output
            while len(self._graphs) >= MAX_GRAPHS:
                self._graphs.popitem(last=False)
            self._graphs[key] = self._capture(self._function, inputs)
        self._graphs.move_to_end(key)
        return self._graphs[key].replay(inputs)

    def release(self) -> None:
        """Drop all graphs and their memory; each is captured again when its shape recurs."""
        self._graphs.clear()


class CudaGraphPool:
    """All captured functions of one engine. Calling it wraps a function as `CudaGraphed`."""

    def __init__(self) -> None:
        self._alive: WeakSet[CudaGraphed] = WeakSet()

    def __call__(self, function: Function, changes: Callable[[], int] = lambda: 0) -> CudaGraphed:
        graph = CudaGraphed(function, changes=changes)
        self._alive.add(graph)
        return graph

    def release(self) -> None:
        for each in self._alive:
            each.release()


class _Capturer:
    """Captures CUDA graphs that share a memory pool: one runs at a time."""

    def __init__(self) -> None:
        self._alive: WeakSet[_Graph] = WeakSet()

    def __call__(self, function: Function, inputs: Inputs) -> GraphReplay:
        # The pool of a live graph: the pool of graphs that are all freed cannot be captured into while one
        # of their outputs is alive. Without a live graph, torch creates a pool.
        graph = _Graph(function, inputs, next((each.pool for each in self._alive), None))
        self._alive.add(graph)
        return graph


class _Graph:
    """One graph with its static inputs and outputs."""

    def __init__(self, function: Function, inputs: Inputs, pool: Any) -> None:
        self._inputs = [None if each is None else torch.empty_like(each) for each in inputs]
        self._fill(inputs)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads of a server may synchronize for pixels during the capture.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._output = function(*self._inputs)

    @property
    def pool(self) -> Any:
        """The graph's memory pool, for others to share."""
        return self._graph.pool()

    def replay(self, inputs: Inputs) -> Any:
        self._fill(inputs)
        self._graph.replay()
        return self._output

    def _fill(self, inputs: Inputs) -> None:
        for static, given in zip(self._inputs, inputs, strict=True):
            if static is not None and given is not None:
                static.copy_(given)
