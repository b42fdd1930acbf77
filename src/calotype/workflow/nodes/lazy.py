"""Imports the implementation of a node when it first runs, so that declarations load nothing heavy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from calotype.workflow.node_api import Context, Run

IMPL_PACKAGE = "calotype.workflow.nodes.impl"


def lazy_import(module: str, function: str) -> Run:
    """A `run` that calls `function` in a module of `impl`."""

    def run(context: Context, **inputs: Any) -> Any:
        return getattr(import_module(f"{IMPL_PACKAGE}.{module}"), function)(context, **inputs)

    run.__qualname__ = run.__name__ = f"{module}.{function}"
    return run
