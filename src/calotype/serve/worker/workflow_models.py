"""Connects workflow nodes to Calotype's engine."""

from __future__ import annotations

from calotype.serve.worker.engine_adapter import device_errors
from calotype.serve.worker.model_cache import ModelCache
from calotype.serve.worker.options import WorkerOptions
from calotype.serve.worker.protocols import Loader
from calotype.serve.worker.workflow_engines import NodeEngines
from calotype.workflow.nodes.model_provider import NodeModels


def node_engines(options: WorkerOptions, loader: Loader, models: ModelCache) -> NodeEngines:
    """Return the worker's engines with their interface for nodes."""
    return NodeEngines(models, loader, lambda engines: NodeModels(engines, device=options.device))


def meaning(error: BaseException) -> BaseException:
    """Convert a device error to an exception of `protocols`; return others unchanged."""
    try:
        with device_errors():
            raise error
    except BaseException as named:
        return named
