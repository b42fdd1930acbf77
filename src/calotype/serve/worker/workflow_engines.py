"""Leases the worker's engines to workflow nodes, from the same cache that ordinary jobs use.

A model that a workflow uses stays loaded until the workflow ends or needs the memory for another model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calotype.serve.worker.model_cache import Lease, ModelCache
from calotype.serve.worker.protocols import Loader
from calotype.workflow.executor import NotReadyError


class NoMemoryYetError(NotReadyError):
    """Models of other jobs take the memory; it becomes free when these jobs end."""


class NodeEngines:
    """Leases engines. `models` is the interface for nodes; `make_models` creates it from this object."""

    def __init__(
        self,
        cache: ModelCache,
        loader: Loader,
        make_models: Callable[[NodeEngines], Any] = lambda _: None,
    ) -> None:
        self._cache, self._loader = cache, loader
        self._leases: dict[tuple[str, str | None], Lease] = {}
        self._awaited: tuple[str, str | None] | None = None
        """The model that did not fit."""
        self._releases_at_check = 0
        """The value of `releases` at the last check."""
        self.models = make_models(self)

    def __call__(self, reference: str, preset: str | None = None) -> Any:
        """Return the engine of a model, by reference and preset; nodes call this at every step."""
        if (reference, preset) not in self._leases:
            self._leases[reference, preset] = self._lease(reference, preset)
        # Nodes need the engine itself, not its adapter.
        return getattr(self._leases[reference, preset].engine, "engine", None)

    def _lease(self, reference: str, preset: str | None) -> Lease:
        lease = self._cache.lease(reference, preset)
        if lease is None:
            self._release_leases()
            lease = self._cache.lease(reference, preset)
        if lease is None:
            self._awaited, self._releases_at_check = (reference, preset), self._cache.releases
            raise NoMemoryYetError(f"no room for {reference!r} yet")
        if self._awaited == (reference, preset):
            self._awaited = None
        return lease

    @property
    def waits(self) -> bool:
        """Whether a model that did not fit is still needed."""
        return self._awaited is not None

    def have_memory(self) -> bool:
        """Whether the awaited model fits now; checked only after a release."""
        if self._awaited is None:
            return True
        if self._cache.releases == self._releases_at_check:
            return False
        self._releases_at_check = self._cache.releases
        try:
            return self._cache.has_memory(*self._awaited)
        # The next call raises the same error, in the node that causes it.
        except Exception:
            return True

    def stop_waiting(self) -> None:
        """Stop waiting for a model: the node did without it."""
        self._awaited = None

    def release(self) -> None:
        """Release all leases and stop waiting."""
        self._awaited = None
        self._release_leases()

    def _release_leases(self) -> None:
        for lease in self._leases.values():
            lease.release()
        self._leases.clear()

    def release_memory(self) -> None:
        """Release caches and unused memory."""
        self._cache.release_memory()
        self._loader.release()
