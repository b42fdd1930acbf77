"""The worker's engines for a workflow's nodes: the same models that ordinary jobs use. Knows no torch.

A model that a workflow uses stays until the workflow ends, or until it needs the room for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calotype.serve.worker.model_cache import Lease, ModelCache
from calotype.serve.worker.protocols import Loader
from calotype.workflow.executor import NotReadyError


class NoMemoryYetError(NotReadyError):
    """Other jobs' models take the room; there will be some when these have ended."""


class NodeEngines:
    """Hands out engines. `models` is what nodes see of them, made by a function that is given this."""

    def __init__(
        self,
        held: ModelCache,
        loader: Loader,
        make_models: Callable[[NodeEngines], Any] = lambda _: None,
    ) -> None:
        self._held, self._loader = held, loader
        self._leases: dict[tuple[str, str | None], Lease] = {}
        self._awaited: tuple[str, str | None] | None = None
        """What found no room."""
        self._looked_at = 0
        """The releases there had been when that was looked at last."""
        self.models = make_models(self)

    def __call__(self, reference: str, preset: str | None = None) -> Any:
        """The engine of a model, by its reference and preset; asked again at every step."""
        if (reference, preset) not in self._leases:
            self._leases[reference, preset] = self._lease(reference, preset)
        # What is left of an engine is `real_engine`'s own; nodes want the engine itself.
        return getattr(self._leases[reference, preset].engine, "engine", None)

    def _lease(self, reference: str, preset: str | None) -> Lease:
        lease = self._held.lease(reference, preset)
        if lease is None:
            self._let_go()
            lease = self._held.lease(reference, preset)
        if lease is None:
            self._awaited, self._looked_at = (reference, preset), self._held.releases
            raise NoMemoryYetError(f"no room for {reference!r} yet")
        if self._awaited == (reference, preset):
            self._awaited = None
        return lease

    @property
    def waits(self) -> bool:
        """Whether a model that found no room has not been asked for again with success."""
        return self._awaited is not None

    def have_memory(self) -> bool:
        """Whether there is room for what is waited for; looked at when something was released."""
        if self._awaited is None:
            return True
        if self._held.releases == self._looked_at:
            return False
        self._looked_at = self._held.releases
        try:
            return self._held.has_memory(*self._awaited)
        # Whoever asks for it again meets the same, and it is told whose error it is.
        except Exception:
            return True

    def stop_waiting(self) -> None:
        """Whoever asked for a model does without it."""
        self._awaited = None

    def release(self) -> None:
        """Nothing is used or waited for any more."""
        self._awaited = None
        self._let_go()

    def _let_go(self) -> None:
        for lease in self._leases.values():
            lease.release()
        self._leases.clear()

    def release_memory(self) -> None:
        """Give memory back that is held without need."""
        self._held.release_memory()
        self._loader.release()
