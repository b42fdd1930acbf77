"""Names for the stages of a job, in torch's trace and for NVIDIA's programs, while somebody looks.

Methods are wrapped from outside and put back: a job that nobody looks into pays nothing. Knows nothing of
what the methods do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A range of that name around the block."""
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
    """The same function, each call inside a range."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with stage(name):
            return function(*arguments, **named)

    return wrapped


@contextmanager
def replaced(owner: object, method: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """An object's or a class's method changed for as long as the block runs."""
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
    """Every call of a method inside a range of that name, for as long as the block runs."""
    with replaced(owner, method, functools.partial(staged, name)):
        yield
