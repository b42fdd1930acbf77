"""Runs workflows in a worker: one at a time, in slices between two steps of the batcher.

Ordinary jobs continue while a graph runs. A workflow whose model does not fit waits until the jobs that hold
the memory have ended, and new jobs wait behind it. Results of nodes are cached for the next graph, in memory
only. The `meaning` function converts device errors.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from calotype.core.errors import CalotypeError, DoesNotFitError, Problem, RequestError
from calotype.core.redaction import redact_paths, remove_paths
from calotype.serve.ipc.messages import Failed, NodeNews, RunWorkflow, Stopped, WorkflowFinished
from calotype.serve.worker.image_encoder import Emit
from calotype.serve.worker.progress_stages import Stages
from calotype.serve.worker.protocols import OutOfMemoryError, failure_of
from calotype.serve.worker.workflow_context import WorkerWorkflowContext
from calotype.serve.worker.workflow_engines import NodeEngines
from calotype.spec.job import NodeFailure
from calotype.workflow import executor as events
from calotype.workflow.cache import Cache
from calotype.workflow.executor import Event, Executor
from calotype.workflow.node_api import Catalogue, NodeDef
from calotype.workflow.validation import validate

_log = logging.getLogger(__name__)

MAX_TRACEBACK_LENGTH = 40


class _ActiveWorkflow:
    """The state of the running workflow."""

    def __init__(self, work: RunWorkflow, host: WorkerWorkflowContext, begin: Callable[[], Executor]) -> None:
        self.work, self.host, self._begin = work, host, begin
        self.execution = begin()
        self.start_reported = self.retried = False
        self.done = self.total = 0
        self.deferred_node: str | None = None
        """The node whose model did not fit and that has not run since."""
        self.paused = False
        """Whether it still waits for memory."""
        self.blocks_others = False
        """Whether the node was deferred before: then new jobs wait until it has run."""

    def restart(self) -> None:
        """Start over; results of nodes are in the cache if they fitted."""
        self.execution.close()
        self.host.take_saved()
        self.host.restart()
        self.execution = self._begin()
        self.done = 0


class WorkflowRunner:
    """The workflows of one worker. Not thread-safe; `emit` sends messages to the server."""

    def __init__(
        self,
        registry: Mapping[str, NodeDef],
        emit: Emit,
        engines: NodeEngines,
        *,
        catalogue: Callable[[Sequence[str]], Catalogue],
        stages: Stages,
        meaning: Callable[[BaseException], BaseException] = lambda error: error,
        cache: Cache | None = None,
    ) -> None:
        """`catalogue` creates a catalogue for a workflow's images; `meaning` converts device errors."""
        self._registry, self._emit, self._engines = registry, emit, engines
        self._catalogue, self._meaning, self._stages = catalogue, meaning, stages
        self._node = ExitStack()
        """The stage of the running node, whose duration is unknown."""
        self._cache = Cache() if cache is None else cache
        self._waiting: deque[tuple[RunWorkflow, Sequence[bytes]]] = deque()
        self._current: _ActiveWorkflow | None = None

    def add(self, work: RunWorkflow, attachments: Sequence[bytes] = ()) -> None:
        """Queue a workflow, in order of arrival."""
        self._waiting.append((work, attachments))

    def stop(self, job_id: str) -> None:
        """Stop a workflow; one that has ended is unaffected."""
        for entry in [entry for entry in self._waiting if entry[0].job_id == job_id]:
            self._waiting.remove(entry)
            self._emit(Stopped(job_id=job_id), ())
        if self._current is not None and self._current.work.job_id == job_id:
            self._current.execution.close()
            self._end()
            self._emit(Stopped(job_id=job_id), ())
            _log.info("workflow stopped", extra={"job_id": job_id})

    def forget_results(self) -> None:
        """Clear the cached results of nodes and release their memory."""
        self._cache.clear()
        self._engines.release_memory()

    @property
    def needs_memory(self) -> bool:
        """Whether no job may lease a model now, so that the workflow's model fits."""
        return self._engines.waits or (self._current is not None and self._current.blocks_others)

    def step(self) -> bool:
        """Run one slice; return False if there was no work, or not enough memory."""
        if self._current is None:
            if not self._waiting:
                return False
            self._open(*self._waiting.popleft())
        if self._current is not None:
            if self._current.paused and not self._engines.have_memory():
                return False
            self._current.paused = False
            self._advance(self._current)
        return True

    def _open(self, work: RunWorkflow, attachments: Sequence[bytes]) -> None:
        catalogue = self._catalogue(work.inputs)
        host = WorkerWorkflowContext(work, attachments, catalogue, self._engines.models)
        checked = validate(work.prompt, self._registry, catalogue, work.outputs)
        if checked.error is not None:
            # A file that existed at admission is gone.
            self._fail(work.job_id, RequestError(Problem("prompt", line) for line in checked.lines()))
            return

        def begin() -> Executor:
            return Executor(
                checked.graph,
                self._registry,
                self._cache,
                host,
                outputs=checked.outputs,
                limits=work.limits,
            )

        self._current = _ActiveWorkflow(work, host, begin)
        _log.info("workflow begins", extra={"job_id": work.job_id})

    def _advance(self, active: _ActiveWorkflow) -> None:
        try:
            event = next(active.execution)
            if isinstance(event, events.Failed):
                self._failed(active, event)
            elif isinstance(event, events.Deferred):
                self._defer(active, event.node)
            elif isinstance(event, events.Finished):
                self._end()
                self._emit(WorkflowFinished(job_id=active.work.job_id), ())
                _log.info("workflow finished", extra={"job_id": active.work.job_id})
            else:
                self._report(active, event)
        # An internal error, or invalid UI output of a package; the worker and its other jobs continue.
        except Exception as error:
            active.execution.close()
            self._end()
            self._fail(active.work.job_id, error)

    def _defer(self, active: _ActiveWorkflow, node: str) -> None:
        self._node.close()
        active.host.discard_unsent()
        # A workflow that alternates two models could otherwise be delayed indefinitely by new jobs.
        active.blocks_others = active.deferred_node == node
        active.deferred_node, active.paused = node, True
        _log.info("workflow waits for memory", extra={"job_id": active.work.job_id, "node": node})

    def _report(self, active: _ActiveWorkflow, event: Event) -> None:
        values: dict[str, Any] = {}
        attachments: list[bytes] = []
        match event:
            case events.Started():
                active.total = len(event.nodes)
                if active.start_reported:
                    return
                active.start_reported = True
                values = {"happened": "started"}
            case events.Cached():
                active.total -= len(event.nodes)
                values = {"happened": "cached", "nodes": event.nodes}
            case events.Executing():
                self._node.close()
                self._node.enter_context(self._stages.slow(f"node {event.node}"))
                if event.node == active.deferred_node:
                    return
                values = {"happened": "executing", "node": event.node}
            case events.Progressed():
                values = {
                    "happened": "progressed",
                    "node": event.node,
                    "value": event.value,
                    "maximum": event.maximum,
                    "has_preview": event.preview is not None,
                }
                attachments = [] if event.preview is None else [event.preview]
            case events.Executed():
                active.done += 1
                active.deferred_node, active.blocks_others = None, False
                self._engines.stop_waiting()
                self._node.close()
                saved = active.host.take_saved()
                values = {
                    "happened": "executed",
                    "node": event.node,
                    "ui": _json_values(event.ui) if event.ui else None,
                    "files": tuple(made for made, _ in saved),
                }
                attachments = [data for _, data in saved]
        message = NodeNews(
            job_id=active.work.job_id, nodes_done=active.done, nodes_total=active.total, **values
        )
        self._emit(message, attachments)

    def _failed(self, active: _ActiveWorkflow, event: events.Failed) -> None:
        error = self._meaning(event.error)
        if not isinstance(error, Exception | SystemExit):
            raise error
        if isinstance(error, OutOfMemoryError):
            # First release the results of earlier graphs.
            self.forget_results()
            if not active.retried:
                active.retried = True
                active.restart()
                return
            error = DoesNotFitError(f"node {event.node} ran out of memory: {error}; use a smaller image size")
        self._end()
        node = NodeFailure(
            node=event.node,
            node_class=event.class_type,
            error=event.exception_type,
            message=redact_paths(error) or event.message,
            traceback=tuple(remove_paths(line) for line in event.traceback[-MAX_TRACEBACK_LENGTH:]),
        )
        self._fail(active.work.job_id, error, node)

    def _fail(self, job_id: str, error: BaseException, node: NodeFailure | None = None) -> None:
        failure = failure_of(error) if isinstance(error, Exception) else failure_of(RuntimeError(str(error)))
        if node is not None:
            message = f"node {node.node} ({node.node_class}): {failure.message}"
            failure = failure.model_copy(update={"message": message})
        unexpected = error if not isinstance(error, CalotypeError) else None
        about = {"job_id": job_id, "node": node and node.node}
        _log.warning("workflow failed: %s", error, extra=about, exc_info=unexpected)
        self._emit(Failed(job_id=job_id, failure=failure, node=node), ())

    def _end(self) -> None:
        self._current = None
        self._node.close()
        self._engines.release()


def _json_values(ui: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a node's UI output to JSON values; a package may return anything."""
    try:
        values: dict[str, Any] = json.loads(json.dumps(ui, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"the UI output of a node is not valid JSON: {error}") from None
    return values
