"""Runs a graph as an iterator of events that does one unit of work between two events.

The caller owns the loop: a command line draws progress, a server does other work in between, and closing the
iterator cancels the run. Only nodes that the outputs need and the cache lacks run. Output nodes always run,
because they have side effects. An error ends the iteration with `Failed`, never with an exception, unless it
states that the node can run later.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from calotype.workflow.cache import Cache, keys
from calotype.workflow.graph import Graph, Link, Node, walk
from calotype.workflow.input_coercion import RefusedValueError, accepted
from calotype.workflow.limits import GraphLimits
from calotype.workflow.node_api import COMBO, Context, NodeDef, Result, Returned, Step
from calotype.workflow.object_info import choices_of


class NotReadyError(Exception):
    """A resource that a node needs is in use; the node can run when it is free."""


@dataclass(frozen=True)
class Started:
    """The first event; `nodes` are all nodes that may run or are cached."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Cached:
    """Nodes that will not run, because they or the nodes that need them are cached."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Executing:
    """A node is about to run."""

    node: str


@dataclass(frozen=True)
class Progressed:
    """A running node reported progress."""

    node: str
    value: int
    maximum: int
    preview: bytes | None = None


@dataclass(frozen=True)
class Deferred:
    """A node could not run yet. Continuing the iteration tries it again from its start."""

    node: str
    error: NotReadyError = field(repr=False, compare=False)


@dataclass(frozen=True)
class Executed:
    """A node has run; `ui` is its output for the user interface, usually empty."""

    node: str
    ui: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """The last event of a successful run; `executed` are the nodes that ran, in order."""

    executed: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """The last event of a run in which a node failed."""

    node: str
    class_type: str
    message: str
    exception_type: str
    traceback: tuple[str, ...]
    executed: tuple[str, ...]
    error: BaseException = field(repr=False, compare=False)
    """For hosts that handle some errors differently; its frames are cleared, so it keeps no memory alive."""


Event = Started | Cached | Executing | Progressed | Deferred | Executed | Finished | Failed


class Executor(Iterator[Event]):
    """One run of a validated graph for some of its outputs."""

    def __init__(
        self,
        graph: Graph,
        registry: Mapping[str, NodeDef],
        cache: Cache,
        context: Context,
        *,
        outputs: Sequence[str],
        limits: GraphLimits | None = None,
    ) -> None:
        """All executors that share a cache must have the same `limits`."""
        self._graph, self._registry, self._cache, self._context = graph, registry, cache, context
        self._limits = limits
        self._outputs = tuple(outputs)
        self._values: dict[str, tuple[Any, ...]] = {}
        self._executed: list[str] = []
        self._keys: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        self._events = self._run()

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """Cancel the run: the running node is closed between two of its steps."""
        self._events.close()

    def _run(self) -> Generator[Event, None, None]:
        order = walk(self._graph, self._outputs).order
        self._keys = keys(self._graph, order, self._registry, self._context)
        yield Started(order)
        running = self._to_run()
        cached = tuple(name for name in order if name not in running)
        self._uses = Counter(link.node for name in running for _, link in self._graph[name].links())
        # Read now: nodes that run below may evict them from the cache.
        for name in cached:
            outputs = self._cache.get(self._keys.get(name, ""))
            if outputs is not None and (self._uses[name] or name in self._outputs):
                self._values[name] = outputs
        yield Cached(cached)
        pending = list(reversed(self._outputs))
        while pending:
            name = pending[-1]
            if name in self._values:
                pending.pop()
                continue
            try:
                missing = self._missing(self._graph[name])
            except (Exception, SystemExit) as error:
                yield self._failed(name, error)
                return
            if missing:
                pending += reversed(missing)
                continue
            failed = yield from self._run_node(self._graph[name])
            if failed:
                yield failed
                return
        yield Finished(tuple(self._executed))

    def _to_run(self) -> set[str]:
        """The nodes that are not cached, starting from the outputs; lazy inputs may spare some of them."""
        running: set[str] = set()
        pending = list(self._outputs)
        while pending:
            name = pending.pop()
            if name in running or (not self._is_output(name) and self._keys.get(name, "") in self._cache):
                continue
            running.add(name)
            pending += [link.node for _, link in self._graph[name].links()]
        return running

    def _is_output(self, name: str) -> bool:
        return self._registry[self._graph[name].class_type].is_output

    def _missing(self, node: Node) -> list[str]:
        """Nodes to run first. Lazy inputs are evaluated once the other inputs are available."""
        known = self._registry[node.class_type]
        lazy = {declared.name for declared in known.inputs if declared.lazy}
        links = node.links()
        missing = [link.node for name, link in links if name not in lazy and link.node not in self._values]
        if missing or not known.needs:
            return missing
        available = {
            name: self._value(value)
            for name, value in node.inputs.items()
            if not isinstance(value, Link) or value.node in self._values
        }
        needed = set(known.needs(available))
        return [link.node for name, link in links if name in needed and link.node not in self._values]

    def _value(self, given: object) -> Any:
        return self._values[given.node][given.output] if isinstance(given, Link) else given

    def _run_node(self, node: Node) -> Generator[Event, None, Failed | None]:
        known = self._registry[node.class_type]
        yield Executing(node.id)
        try:
            result = yield from self._result(known, node)
        except NotReadyError as error:
            _clear_frames(error)
            yield Deferred(node.id, error)
            return None
        # A package that calls sys.exit must not end a server; Ctrl-C and closing still propagate.
        except (Exception, SystemExit) as error:
            return self._failed(node.id, error)
        self._store(node, result.outputs)
        yield Executed(node.id, result.ui)
        return None

    def _given(self, known: NodeDef, node: Node, name: str) -> Any:
        """An input's value: None for a lazy input that was not needed; linked widget values are validated."""
        given = node.inputs[name]
        if not isinstance(given, Link):
            return given
        if given.node not in self._values:
            return None
        value, declared = self._value(given), known.input(name)
        if declared is None or not declared.is_widget:
            return value
        choices = choices_of(declared, self._context.catalogue) if declared.type == COMBO else ()
        try:
            return accepted(declared, value, choices)
        except RefusedValueError as refused:
            raise ValueError(f"{name}, from node {given.node}: {refused.rule}") from None

    def _result(self, known: NodeDef, node: Node) -> Generator[Event, None, Result]:
        given = {name: self._given(known, node, name) for name in node.inputs}
        if self._limits is not None:
            self._limits.check_given(known, given)
        returned = known.run(self._context, **given)
        if isinstance(returned, Generator):
            returned = yield from self._steps(node, returned)
        result = returned if isinstance(returned, Result) else Result(returned)
        if not isinstance(result.outputs, tuple) or len(result.outputs) != len(known.outputs):
            _raise_output_mismatch(known, result.outputs)
        if self._limits is not None:
            self._limits.check_made(known, given, result.outputs)
        return result

    def _steps(
        self, node: Node, work: Generator[Step, None, Returned]
    ) -> Generator[Progressed, None, Returned]:
        try:
            while True:
                try:
                    step = next(work)
                except StopIteration as ended:
                    return ended.value
                yield Progressed(node.id, step.value, step.maximum, step.preview)
        finally:
            # A node that raises while it is closed, or does not stop, still counts as cancelled.
            with suppress(Exception):
                work.close()

    def _store(self, node: Node, outputs: tuple[Any, ...]) -> None:
        self._executed.append(node.id)
        self._values[node.id] = outputs
        key = self._keys.get(node.id)
        if key and not self._is_output(node.id):
            self._cache.put(key, outputs)
        for _, link in node.links():
            self._uses[link.node] -= 1
            # The last consumer has run: keep no value beyond the cache's limit.
            if not self._uses[link.node] and link.node not in self._outputs:
                self._values.pop(link.node, None)

    def _failed(self, name: str, error: BaseException) -> Failed:
        lines = tuple(traceback.format_exception(error))
        _clear_frames(error)
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        message = str(error) or type(error).__name__
        known = self._graph[name].class_type
        return Failed(name, known, message, kind, lines, tuple(self._executed), error)


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _raise_output_mismatch(node: NodeDef, outputs: object) -> NoReturn:
    declared = ", ".join(output.type for output in node.outputs) or "none"
    got = f"{len(outputs)} of them" if isinstance(outputs, tuple) else f"a {type(outputs).__name__}"
    raise TypeError(f"{node.name} returned {got}, it declares a tuple of {len(node.outputs)}: {declared}")
