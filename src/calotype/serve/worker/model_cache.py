"""An LRU cache of loaded models: it loads on demand and evicts the least recently used.

The limit counts bytes of weights, known before a model is loaded. A model in use stays. Names with the same
contents share an entry, and the hash is a name too. Another preset is another entry, whose weights count
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from calotype.core.errors import DoesNotFitError
from calotype.serve.ipc import messages
from calotype.serve.ipc.messages import LoadedModel, Loading
from calotype.serve.worker.progress_stages import Stages
from calotype.serve.worker.protocols import JobEngine, Loader, OutOfMemoryError

_log = logging.getLogger(__name__)

MAX_AWAITED = 2
"""Models that can be waited for: that of the first ordinary job, and that of the workflow."""


@dataclass
class _CacheEntry:
    about: LoadedModel
    engine: JobEngine
    names: set[str]
    users: int = 0
    unwanted: str | None = None
    """The name under which to evict it as soon as it is unused."""


@dataclass(frozen=True)
class Lease:
    """A model that stays loaded until it is released."""

    model: str
    """The same value for all names of a model."""
    preset: str | None
    """None means the worker's default."""
    engine: JobEngine
    release: Callable[[], None]


class ModelCache:
    """The loaded models. It calls `on_change` after every change and `on_loading` with loading progress."""

    def __init__(
        self,
        loader: Loader,
        *,
        memory_bytes: int | None = None,
        on_change: Callable[[messages.Models], None],
        on_loading: Callable[[Loading], None],
        stages: Stages,
    ) -> None:
        self._loader, self._on_change, self._on_loading = loader, on_change, on_loading
        self._stages = stages
        self._memory_bytes = loader.memory_bytes if memory_bytes is None else memory_bytes
        self._entries: list[_CacheEntry] = []
        """Cache entries, most recently used last."""
        self._waiting_models: dict[str, LoadedModel] = {}
        """Models that did not fit; cached, because every attempt would read their files again."""
        self.releases = 0
        """Number of ended leases: while it is unchanged, a model that did not fit still does not."""

    def lease(self, name: str, preset: str | None = None) -> Lease | None:
        """Return the model for one job, loading it if necessary; None while models in use take the memory."""
        preset = None if preset == self._loader.preset else preset
        entry = self._find(name, preset) or self._find_or_load(name, preset)
        if entry is None:
            return None
        entry.users += 1
        self._entries.remove(entry)
        self._entries.append(entry)
        return Lease(entry.about.name, preset, entry.engine, partial(self._release, entry))

    def has_memory(self, name: str, preset: str | None = None) -> bool:
        """Whether `lease` would return the model."""
        preset = None if preset == self._loader.preset else preset
        if self._find(name, preset) is not None:
            return True
        about = self._describe(name, preset)
        self._remember_waiting(name, about)
        return self._find(about.sha256, preset) is not None or self._victims_for(about) is not None

    def load(self, name: str) -> bool:
        """Load a model; False while models in use take the memory."""
        lease = self.lease(name)
        if lease is None:
            return False
        lease.release()
        # This cancels an earlier unload; the message answers both requests.
        self._entries[-1].unwanted = None
        self._notify(asked=name)
        return True

    def unload(self, name: str) -> None:
        """Evict a model with all its presets as soon as no job uses it."""
        victims = [entry for entry in self._entries if name in entry.names]
        if not victims:
            self._notify(asked=name)
            return
        for entry in victims:
            entry.unwanted = name
        self.evict_unused()

    def release_memory(self) -> None:
        """Make all engines release caches: the engine that lacks memory may not be the one that holds it."""
        for entry in self._entries:
            entry.engine.release_memory()

    def evict_unused(self) -> None:
        """Evict unwanted, unused entries. Not part of `release`, whose caller still holds the engine."""
        for entry in [entry for entry in self._entries if entry.unwanted is not None and not entry.users]:
            others = any(other.unwanted == entry.unwanted for other in self._entries if other is not entry)
            self._drop(entry, asked=None if others else entry.unwanted)

    def _find(self, name: str, preset: str | None) -> _CacheEntry | None:
        return next(
            (entry for entry in self._entries if name in entry.names and entry.about.preset == preset), None
        )

    def _find_or_load(self, name: str, preset: str | None) -> _CacheEntry | None:
        about = self._describe(name, preset)
        entry = self._find(about.sha256, preset)
        if entry is not None:
            entry.names.add(name)
            return entry
        if not self._make_room(about):
            self._remember_waiting(name, about)
            return None
        _log.info("loading %s", name, extra={"model": name})
        with self._stages.slow(f"loading {name}"):
            entry = _CacheEntry(about, self._load_with_retries(about), {name, about.sha256})
        self._entries.append(entry)
        _log.info("loaded %s", name, extra={"model": name, "sha256": about.sha256, "bytes": about.bytes})
        self._notify()
        return entry

    def _describe(self, name: str, preset: str | None) -> LoadedModel:
        about = self._waiting_models.pop(name, None)
        if about is None:
            with self._stages.slow(f"reading {name}"):
                about = self._loader.describe(name)
        return about.model_copy(update={"preset": preset})

    def _remember_waiting(self, name: str, about: LoadedModel) -> None:
        self._waiting_models[name] = about
        while len(self._waiting_models) > MAX_AWAITED:
            del self._waiting_models[next(iter(self._waiting_models))]

    def _load_with_retries(self, about: LoadedModel) -> JobEngine:
        """Load a model; on an out-of-memory error release caches, then evict idle models until it fits."""
        caches_released = not self._entries
        while True:
            try:
                return self._loader.load(
                    about.name, _LoadProgress(about.name, self._on_loading), about.preset
                )
            except OutOfMemoryError as error:
                if not caches_released:
                    self.release_memory()
                    caches_released = True
                    continue
                idle = next((entry for entry in self._entries if not entry.users), None)
                if idle is None:
                    rule = f"model {about.name!r} has {about.bytes} bytes of weights, and the device is out"
                    raise DoesNotFitError(f"{rule} of memory: {error}; unload another model") from error
                self._drop(idle)

    def _make_room(self, about: LoadedModel) -> bool:
        victims = self._victims_for(about)
        for entry in victims or ():
            _log.info("evicting %s to load %s", entry.about.name, about.name, extra={"model": about.name})
            self._drop(entry)
        return victims is not None

    def _victims_for(self, about: LoadedModel) -> list[_CacheEntry] | None:
        """Return the idle entries to evict for a model; None if they are not enough."""
        if about.bytes > self._memory_bytes:
            raise DoesNotFitError(
                f"model {about.name!r} has {about.bytes} bytes of weights, the limit of this worker is "
                f"{self._memory_bytes}; start it with more memory, or use a smaller model or precision"
            )
        missing = about.bytes - self._free_bytes()
        victims: list[_CacheEntry] = []
        for entry in self._entries:
            if missing <= 0:
                break
            if not entry.users:
                victims.append(entry)
                missing -= entry.about.bytes
        return victims if missing <= 0 else None

    def _drop(self, entry: _CacheEntry, *, asked: str | None = None) -> None:
        self._entries.remove(entry)
        # Old leases refer to the entry and must not keep the engine's device memory.
        del entry.engine
        self._loader.release()
        _log.info("unloaded %s", entry.about.name, extra={"model": entry.about.name})
        self._notify(asked)

    def _release(self, entry: _CacheEntry) -> None:
        entry.users -= 1
        self.releases += 1

    def _free_bytes(self) -> int:
        return self._memory_bytes - sum(entry.about.bytes for entry in self._entries)

    def _notify(self, asked: str | None = None) -> None:
        self._on_change(
            messages.Models(
                models=tuple(entry.about for entry in self._entries),
                memory_bytes=self._memory_bytes,
                free_bytes=self._free_bytes(),
                asked=asked,
            )
        )


class _LoadProgress:
    """Sends `Progress` as messages, one per percent."""

    def __init__(self, model: str, send: Callable[[Loading], None]) -> None:
        self._model, self._emit = model, send
        self._label, self._done, self._total, self._sent_percent = "", 0, 0, 0

    def start(self, label: str, total: int) -> None:
        self._label, self._done, self._total, self._sent_percent = label, 0, total, 0
        self._send()

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if 100 * self._done // max(1, self._total) > self._sent_percent:
            self._send()

    def describe(self, label: str) -> None:
        self._label = label
        self._send()

    def _send(self) -> None:
        self._sent_percent = 100 * self._done // max(1, self._total)
        label = f"{self._model}: {self._label}"
        self._emit(Loading(label=label, done=self._done, total=self._total))
