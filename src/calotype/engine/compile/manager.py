"""Runs regions eagerly until they are compiled in the background: no request waits for a compiler.

Prebuilt regions are loaded at the first call. All others are compiled in background threads, if at all, a few
at a time, and replace the eager ones when they are ready.
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
"""A compiled region: a function of its inputs and its weights."""
Compile = Callable[[CompileRequest], Path]
"""Compiles a region to a file. Slow; may raise anything."""
PassWeights = Callable[[Region], list[Tensor]]
"""A region's weights in the order of their names, as the compiled function takes them."""

_PROFILE_NAME = "calotype::compiled"
"""Name of the range in a profile."""
_RecordFunction = torch._C._profiler._RecordFunctionFast

_log = logging.getLogger(__name__)


def unchanged_weights(region: Region) -> list[Tensor]:
    return list(region.weights().values())


class CompileAbandonedError(Exception):
    """Raised by a `Compile` that was stopped: nothing more is to be compiled."""


class CompileManager:
    """Compiles and runs the regions of one engine's network."""

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
        """`kept` maps signatures to prebuilt files; without `compile_it` nothing else is compiled.

        `at_once` regions are compiled in parallel. `wait` is for builds: a region is then compiled before its
        first call returns.
        """
        self._files, self._load, self._compile, self._wait = dict(kept), load, compile_it, wait
        self._loaded: dict[str, CompiledFunctions] = {}
        self._requested: set[str] = set()
        self._requests: SimpleQueue[CompileRequest | None] = SimpleQueue()
        self.hand_in, self._regions = hand_in, WeakSet[CompiledRegion]()
        self._at_once, self._workers = at_once, list[Thread]()
        # Stops the threads when the manager is freed.
        finalize(self, _stop_workers, self._requests, at_once)
        self._counting = Lock()
        self.changes = 0
        """Number of regions compiled since the start."""

    @property
    def compiles(self) -> bool:
        """Whether anything beyond the prebuilt regions is compiled."""
        return self._compile is not None

    def run(self, region: Region) -> CompiledRegion:
        """Wrap a region for a network."""
        compiled = CompiledRegion(region, self)
        self._regions.add(compiled)
        return compiled

    def refresh(self) -> None:
        """Pass changed weights to all regions."""
        for each in self._regions:
            each.refresh()

    def made(self, region: Region, signature: str, inputs: Inputs) -> CompiledFunctions | None:
        """The compiled region, or None while there is none. Returns immediately, except in a build."""
        loaded = self._loaded.get(signature)
        if loaded is not None:
            return loaded
        if signature not in self._files and self._compile is not None and signature not in self._requested:
            self._requested.add(signature)
            forms = tuple(
                None if each is None else RegionSignature.of(each) for each in region.weight_layout(inputs)
            )
            self._request(CompileRequest(signature, region, forms))
        # Loaded by the thread that runs it: on a GPU other threads must not load during a graph capture.
        # Files that become ready during a capture are loaded before the next run.
        if signature in self._files and not _is_capturing(inputs):
            self._load_file(signature, region)
        return self._loaded.get(signature)

    def finish(self) -> None:
        """Wait for all requested compilations."""
        _stop_workers(self._requests, len(self._workers))
        while self._workers:
            self._workers.pop().join()

    def _request(self, request: CompileRequest) -> None:
        assert self._compile is not None
        if self._wait:
            self._files[request.signature] = self._compile(request)
            return
        if len(self._workers) < self._at_once:
            thread_args = (ref(self), self._requests, self._compile)
            # A daemon: it must not delay the end of the program.
            self._workers.append(
                Thread(target=_compile_requests, args=thread_args, name="compiling", daemon=True)
            )
            self._workers[-1].start()
        self._requests.put(request)

    def _add_file(self, request: CompileRequest, path: Path) -> None:
        with self._counting:
            self._files[request.signature] = path
            self.changes += 1
        _log.info("compiled: %s", request.region.name)

    def _load_file(self, signature: str, region: Region) -> None:
        path = self._files.pop(signature)
        # Not compiled again, even if loading fails.
        self._requested.add(signature)
        try:
            self._loaded[signature] = self._load(path)
        except Exception as error:
            _log.warning("%s stays uncompiled: %s", region.name, error)


def _is_capturing(inputs: Inputs) -> bool:
    on_gpu = any(each is not None and each.is_cuda for each in inputs)
    return on_gpu and torch.cuda.is_current_stream_capturing()


def _stop_workers(requests: SimpleQueue[CompileRequest | None], workers: int) -> None:
    for _ in range(workers):
        requests.put(None)


def _compile_requests(
    manager_ref: ReferenceType[CompileManager],
    requests: SimpleQueue[CompileRequest | None],
    compile_it: Compile,
) -> None:
    """The body of a compile thread. It keeps neither the manager nor a network alive."""
    while (request := requests.get()) is not None:
        try:
            path = compile_it(request)
        except CompileAbandonedError:
            return
        # A compiler may raise anything: the region keeps running eagerly.
        except Exception as error:
            _log.warning("%s stays uncompiled: %s", request.region.name, error)
        else:
            if (manager := manager_ref()) is not None:
                manager._add_file(request, path)
                del manager
        del request


class CompiledRegion:
    """A region, compiled for each kind of inputs it receives."""

    def __init__(self, region: Region, manager: CompileManager) -> None:
        self._region, self._manager = region, manager
        self._signatures: dict[Kind, str] = {}
        self._weights: list[Tensor] | None = None

    def __call__(self, *inputs: Tensor | None) -> Any:
        region, kind = self._region, self._region.kind(inputs)
        if kind not in self._signatures:
            self._signatures[kind] = region.signature(kind)
        compiled = self._manager.made(region, self._signatures[kind], inputs)
        if compiled is None:
            return region.walk(*inputs)
        if self._weights is None:
            self._weights = self._manager.hand_in(region)
        # Without this range a profiler shows almost nothing of the compiled code.
        with _RecordFunction(_PROFILE_NAME):
            return compiled(list(region.weight_layout(inputs)), self._weights)

    def refresh(self) -> None:
        """Weights have changed: pass them again at the next call."""
        self._weights = None
