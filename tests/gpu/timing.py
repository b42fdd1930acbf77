"""How long a function of tensors takes on a GPU. Knows nothing of what it does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CALLS_PER_GRAPH = 20
REPLAYS = 15


def microseconds(run: Callable[..., Any], inputs: tuple[Tensor, ...], calls: int = CALLS_PER_GRAPH) -> float:
    """One call inside a replayed CUDA graph, the median of many; on a CPU, of a single call."""
    if not inputs[0].is_cuda:
        started = time.perf_counter()
        run(*inputs)
        return (time.perf_counter() - started) * 1e6
    graph = _captured(run, inputs, calls)
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def _captured(run: Callable[..., Any], inputs: tuple[Tensor, ...], calls: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run(*inputs)
    graph.replay()
    return graph
