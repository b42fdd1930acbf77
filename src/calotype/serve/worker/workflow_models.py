"""Calotype's engine as nodes want it. Knows nothing of workflows or messages."""

from __future__ import annotations

from calotype.serve.worker.engine_adapter import device_errors
from calotype.serve.worker.model_cache import ModelCache
from calotype.serve.worker.options import WorkerOptions
from calotype.serve.worker.protocols import Loader
from calotype.serve.worker.workflow_engines import NodeEngines
from calotype.workflow.nodes.model_provider import NodeModels


def node_engines(options: WorkerOptions, loader: Loader, models: ModelCache) -> NodeEngines:
    """The worker's engines, with what nodes see of them."""
    return NodeEngines(models, loader, lambda engines: NodeModels(engines, device=options.device))


def meaning(error: BaseException) -> BaseException:
    """An error of the device in the words of `engines`; any other as it is."""
    try:
        with device_errors():
            raise error
    except BaseException as named:
        return named
