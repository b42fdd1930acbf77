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
        other_preset: Callable[[str, str], Any] | None = None,
    ) -> None:
        """`other_preset` loads an engine with a preset that is not the worker's."""
        self._held, self._loader, self._other_preset = held, loader, other_preset
        self._leases: dict[str, Lease] = {}
        self.models = make_models(self)

    def __call__(self, reference: str, preset: str | None = None) -> Any:
        """The engine of a model, by its reference and preset; asked again at every step."""
        if preset not in (None, self._loader.preset) and self._other_preset is not None:
            return self._other_preset(reference, preset or "")
        if reference not in self._leases:
            self._leases[reference] = self._lease(reference)
        # What is left of an engine is `real_engine`'s own; nodes want the engine itself.
        return getattr(self._leases[reference].engine, "engine", None)

    def _lease(self, reference: str) -> Lease:
        lease = self._held.lease(reference)
        if lease is None:
            self.release()
            lease = self._held.lease(reference)
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
