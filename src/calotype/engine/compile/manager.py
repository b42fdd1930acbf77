"""Regions run compiled as soon as they are, and uncompiled until then: nobody ever waits for a compiler.

What an engine was built with is there at the first call. Anything else is compiled behind everyone's back, if
at all, a few regions at a time, and takes the place of the uncompiled one when it is done. Knows nothing of
networks, nor of how something is compiled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any
from weakref import ReferenceType, WeakSet, finalize, ref

import torch
from torch import Tensor

from calotype.engine.compile.region import CompileRequest, Inputs, Kind, Region, RegionSignature

CompiledFunctions = Callable[[list[Tensor | None], list[Tensor]], Any]
"""A compiled region: of its inputs and its weights."""
Compile = Callable[[CompileRequest], Path]
"""To a file. Takes its time; may raise anything."""
PassWeights = Callable[[Region], list[Tensor]]
"""A region's weights in the order of their names, as what was compiled is given them."""

_SEEN_AS = "calotype::compiled"
"""What a profiler calls it."""
_Seen = torch._C._profiler._RecordFunctionFast

_log = logging.getLogger(__name__)


def unchanged_weights(region: Region) -> list[Tensor]:
    return list(region.weights().values())


class CompileAbandonedError(Exception):
    """Raised by a `Compile` that was ended: nobody wants anything compiled any more."""


class CompileManager:
    """What is compiled of one engine's network."""

    def __init__(
        self,
        kept: Mapping[str, Path],
        load: Callable[[Path], CompiledFunctions],
        compile_it: Compile | None = None,
        *,
        hand_in: PassWeights = unchanged_weights,
        at_once: int = 1,
        wait: bool = False,
    ) -> None:
        """`kept` has files by signature; without `compile_it` nothing else is compiled.

        `at_once` regions are compiled beside each other. `wait` is for builds: what is compiled is then there
        at its first call.
        """
        self._files, self._load, self._compile, self._wait = dict(kept), load, compile_it, wait
        self._made: dict[str, CompiledFunctions] = {}
        self._ordered: set[str] = set()
        self._orders: SimpleQueue[CompileRequest | None] = SimpleQueue()
        self.hand_in, self._regions = hand_in, WeakSet[CompiledRegion]()
        self._at_once, self._workers = at_once, list[Thread]()
        # Whoever works for it has nothing left to wait for.
        finalize(self, _send_home, self._orders, at_once)
        self._counting = Lock()
        self.changes = 0
        """How often something has been compiled since the start."""

    @property
    def compiles(self) -> bool:
        """Whether anything is compiled that is not there already."""
        return self._compile is not None

    def run(self, region: Region) -> CompiledRegion:
        """The region as a network is to run it."""
        compiled = CompiledRegion(region, self)
        self._regions.add(compiled)
        return compiled

    def refresh(self) -> None:
        """Weights have changed."""
        for each in self._regions:
            each.refresh()

    def made(self, region: Region, signature: str, inputs: Inputs) -> CompiledFunctions | None:
        """The compiled region, or None as long as there is none. Returns at once, but for a build."""
        found = self._made.get(signature)
        if found is not None:
            return found
        if signature not in self._files and self._compile is not None and signature not in self._ordered:
            self._ordered.add(signature)
            forms = tuple(
                None if each is None else RegionSignature.of(each) for each in region.weight_layout(inputs)
            )
            self._order(CompileRequest(signature, region, forms))
        # Loaded here, by whoever runs it: on a GPU nobody else may, while a graph is recorded. What comes
        # meanwhile is not loaded into that recording, but before the next.
        if signature in self._files and not _recording(inputs):
            self._take(signature, region)
        return self._made.get(signature)

    def finish(self) -> None:
        """Wait for all that was ordered."""
        _send_home(self._orders, len(self._workers))
        while self._workers:
            self._workers.pop().join()

    def _order(self, order: CompileRequest) -> None:
        assert self._compile is not None
        if self._wait:
            self._files[order.signature] = self._compile(order)
            return
        if len(self._workers) < self._at_once:
            given = (ref(self), self._orders, self._compile)
            # A daemon: nobody waits for it at the end of a program either.
            self._workers.append(Thread(target=_work, args=given, name="compiling", daemon=True))
            self._workers[-1].start()
        self._orders.put(order)

    def _keep(self, order: CompileRequest, path: Path) -> None:
        with self._counting:
            self._files[order.signature] = path
            self.changes += 1
        _log.info("compiled: %s", order.region.name)

    def _take(self, signature: str, region: Region) -> None:
        path = self._files.pop(signature)
        # Whatever comes of it, it is not compiled once more.
        self._ordered.add(signature)
        try:
            self._made[signature] = self._load(path)
        except Exception as error:
            _log.warning("%s stays uncompiled: %s", region.name, error)


def _recording(inputs: Inputs) -> bool:
    on_gpu = any(each is not None and each.is_cuda for each in inputs)
    return on_gpu and torch.cuda.is_current_stream_capturing()


def _send_home(orders: SimpleQueue[CompileRequest | None], workers: int) -> None:
    for _ in range(workers):
        orders.put(None)


def _work(
    workshop: ReferenceType[CompileManager], orders: SimpleQueue[CompileRequest | None], compile_it: Compile
) -> None:
    """What a workshop's thread does. It keeps neither the workshop nor a network from being let go."""
    while (order := orders.get()) is not None:
        try:
            path = compile_it(order)
        except CompileAbandonedError:
            return
        # Whatever a compiler may raise: pictures are made without.
        except Exception as error:
            _log.warning("%s stays uncompiled: %s", order.region.name, error)
        else:
            if (still := workshop()) is not None:
                still._keep(order, path)
            del still
        del order


class CompiledRegion:
    """A region, compiled for each kind of inputs it meets."""

    def __init__(self, region: Region, workshop: CompileManager) -> None:
        self._region, self._workshop = region, workshop
        self._signatures: dict[Kind, str] = {}
        self._weights: list[Tensor] | None = None

    def __call__(self, *inputs: Tensor | None) -> Any:
        region, kind = self._region, self._region.kind(inputs)
        if kind not in self._signatures:
            self._signatures[kind] = region.signature(kind)
        made = self._workshop.made(region, self._signatures[kind], inputs)
        if made is None:
            return region.walk(*inputs)
        if self._weights is None:
            self._weights = self._workshop.hand_in(region)
        # A profiler sees hardly anything of what is inside.
        with _Seen(_SEEN_AS):
            return made(list(region.weight_layout(inputs)), self._weights)

    def refresh(self) -> None:
        """Weights have changed: they are handed in anew."""
        self._weights = None
