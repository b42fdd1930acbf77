"""Workflows in a worker: one at a time, a bit between two turns of the batcher.

So ordinary jobs go on while a graph runs. One whose model finds no room waits until those that hold it have
ended, and new ones wait behind it. What nodes made is kept for the next graph, in memory alone. Knows nothing
of sockets or torch: what an error means for the device, a function given to it says.
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


class _Under:
    """A workflow under way."""

    def __init__(self, work: RunWorkflow, host: WorkerWorkflowContext, begin: Callable[[], Executor]) -> None:
        self.work, self.host, self._begin = work, host, begin
        self.execution = begin()
        self.told_start = self.retried = False
        self.done = self.total = 0
        self.postponed: str | None = None
        """The node that found no room and has not run since."""
        self.paused = False
        """Whether there is none still."""
        self.insists = False
        """Whether that has happened to it before: then others wait until it has run."""

    def again(self) -> None:
        """From the start; what nodes have made is in the cache, if there was room."""
        self.execution.close()
        self.host.take_saved()
        self.host.restart()
        self.execution = self._begin()
        self.done = 0


class WorkflowRunner:
    """The workflows of one worker. For one thread; `emit` sends what the server is to know."""

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
        """`catalogue` makes one for the pictures of a workflow; `meaning` translates errors of the device."""
        self._registry, self._emit, self._engines = registry, emit, engines
        self._catalogue, self._meaning, self._stages = catalogue, meaning, stages
        self._node = ExitStack()
        """The stage that a node is: nobody knows how long one takes."""
        self._cache = Cache() if cache is None else cache
        self._waiting: deque[tuple[RunWorkflow, Sequence[bytes]]] = deque()
        self._current: _Under | None = None

    def add(self, work: RunWorkflow, attachments: Sequence[bytes] = ()) -> None:
        """Take on a workflow, in the order of arrival."""
        self._waiting.append((work, attachments))

    def stop(self, job_id: str) -> None:
        """Leave a workflow; one that has ended stays as it is."""
        for place in [place for place in self._waiting if place[0].job_id == job_id]:
            self._waiting.remove(place)
            self._emit(Stopped(job_id=job_id), ())
        if self._current is not None and self._current.work.job_id == job_id:
            self._current.execution.close()
            self._end()
            self._emit(Stopped(job_id=job_id), ())
            _log.info("workflow stopped", extra={"job_id": job_id})

    def forget_results(self) -> None:
        """Let go what nodes made, and with it what memory was held for it."""
        self._cache.clear()
        self._engines.release_memory()

    @property
    def needs_memory(self) -> bool:
        """Whether nobody else is to begin with a model, so that the workflow finds room for its own."""
        return self._engines.waits or (self._current is not None and self._current.insists)

    def step(self) -> bool:
        """One bit of work; False when there was nothing to do, or no room for it."""
        if self._current is None:
            if not self._waiting:
                return False
            self._open(*self._waiting.popleft())
        if self._current is not None:
            if self._current.paused and not self._engines.have_memory():
                return False
            self._current.paused = False
            self._go_on(self._current)
        return True

    def _open(self, work: RunWorkflow, attachments: Sequence[bytes]) -> None:
        catalogue = self._catalogue(work.inputs)
        host = WorkerWorkflowContext(work, attachments, catalogue, self._engines.models)
        checked = validate(work.prompt, self._registry, catalogue, work.outputs)
        if checked.error is not None:
            # What was there when it was accepted has gone since.
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

        self._current = _Under(work, host, begin)
        _log.info("workflow begins", extra={"job_id": work.job_id})

    def _go_on(self, under: _Under) -> None:
        try:
            event = next(under.execution)
            if isinstance(event, events.Failed):
                self._failed(under, event)
            elif isinstance(event, events.Deferred):
                self._postpone(under, event.node)
            elif isinstance(event, events.Finished):
                self._end()
                self._emit(WorkflowFinished(job_id=under.work.job_id), ())
                _log.info("workflow finished", extra={"job_id": under.work.job_id})
            else:
                self._tell(under, event)
        # A mistake of ours, or of a package in what it has to show; the worker and its other jobs live on.
        except Exception as error:
            under.execution.close()
            self._end()
            self._fail(under.work.job_id, error)

    def _postpone(self, under: _Under, node: str) -> None:
        self._node.close()
        under.host.discard_unsent()
        # One that uses two models by turns could meet new jobs at each of them, for ever.
        under.insists = under.postponed == node
        under.postponed, under.paused = node, True
        _log.info("workflow waits for room", extra={"job_id": under.work.job_id, "node": node})

    def _tell(self, under: _Under, event: Event) -> None:
        news: dict[str, Any] = {}
        attachments: list[bytes] = []
        match event:
            case events.Started():
                under.total = len(event.nodes)
                if under.told_start:
                    return
                under.told_start = True
                news = {"happened": "started"}
            case events.Cached():
                under.total -= len(event.nodes)
                news = {"happened": "cached", "nodes": event.nodes}
            case events.Executing():
                self._node.close()
                self._node.enter_context(self._stages.slow(f"node {event.node}"))
                if event.node == under.postponed:
                    return
                news = {"happened": "executing", "node": event.node}
            case events.Progressed():
                news = {
                    "happened": "progressed",
                    "node": event.node,
                    "value": event.value,
                    "maximum": event.maximum,
                    "has_preview": event.preview is not None,
                }
                attachments = [] if event.preview is None else [event.preview]
            case events.Executed():
                under.done += 1
                under.postponed, under.insists = None, False
                self._engines.stop_waiting()
                self._node.close()
                saved = under.host.take_saved()
                news = {
                    "happened": "executed",
                    "node": event.node,
                    "ui": _plain(event.ui) if event.ui else None,
                    "files": tuple(made for made, _ in saved),
                }
                attachments = [data for _, data in saved]
        told = NodeNews(job_id=under.work.job_id, nodes_done=under.done, nodes_total=under.total, **news)
        self._emit(told, attachments)

    def _failed(self, under: _Under, event: events.Failed) -> None:
        error = self._meaning(event.error)
        if not isinstance(error, Exception | SystemExit):
            raise error
        if isinstance(error, OutOfMemoryError):
            # What earlier graphs left is the first that can go.
            self.forget_results()
            if not under.retried:
                under.retried = True
                under.again()
                return
            error = DoesNotFitError(
                f"node {event.node} ran out of memory: {error}; make the pictures smaller"
            )
        self._end()
        node = NodeFailure(
            node=event.node,
            node_class=event.class_type,
            error=event.exception_type,
            message=redact_paths(error) or event.message,
            traceback=tuple(remove_paths(line) for line in event.traceback[-MAX_TRACEBACK_LENGTH:]),
        )
        self._fail(under.work.job_id, error, node)

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


def _plain(ui: Mapping[str, Any]) -> dict[str, Any]:
    """What a node shows as JSON has it; a package may hand out anything."""
    try:
        shown: dict[str, Any] = json.loads(json.dumps(ui, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"what a node has to show is no JSON: {error}") from None
    return shown
