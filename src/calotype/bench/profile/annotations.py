"""Marks the stages of a job with ranges for torch's profiler and NVIDIA's tools.

Methods are wrapped temporarily, so that jobs without profiling have no overhead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Mark the block with a range of that name."""
    on_gpu = _with_nvtx()
    if on_gpu:
        torch.cuda.nvtx.range_push(name)
    try:
        with torch.profiler.record_function(name):
            yield
    finally:
        if on_gpu:
            torch.cuda.nvtx.range_pop()


def _with_nvtx() -> bool:
    return torch.cuda.is_available()


def staged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that each call is inside a range."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with stage(name):
            return function(*arguments, **named)

    return wrapped


@contextmanager
def replaced(owner: object, method: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a method of an object or a class while the block runs."""
    own = vars(owner).get(method)
    setattr(owner, method, change(getattr(owner, method)))
    try:
        yield
    finally:
        if own is None:
            delattr(owner, method)
        else:
            setattr(owner, method, own)


@contextmanager
def marked(owner: object, method: str, name: str) -> Iterator[None]:
    """Mark every call of a method with a range of that name while the block runs."""
    with replaced(owner, method, functools.partial(staged, name)):
        yield
