"""The worker's engines for a workflow's nodes: the same models that ordinary jobs use. Knows no torch.

A model that a workflow uses stays until the workflow ends, or until it needs the room for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calotype.serve.worker.engines import Loader
from calotype.serve.worker.models import Lease, Models


class NoRoomYetError(Exception):
    """Other jobs' models take the room; there will be some when these have ended."""


class NodeEngines:
    """Hands out engines. `models` is what nodes see of them, made by a function that is given this."""

    def __init__(
        self,
        held: Models,
        loader: Loader,
        make_models: Callable[[NodeEngines], Any] = lambda _: None,
    ) -> None:
        self._held, self._loader = held, loader
        self._leases: dict[tuple[str, str | None], Lease] = {}
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
            self.release()
            lease = self._held.lease(reference, preset)
        if lease is None:
            raise NoRoomYetError(f"no room for {reference!r} yet")
        return lease

    def release(self) -> None:
        """Nothing is used any more."""
        for lease in self._leases.values():
            lease.release()
        self._leases.clear()

    def relieve(self) -> None:
        """Give memory back that is held without need."""
        self._loader.let_go()
