"""The models a worker holds: loaded when they are wanted, the least recently used let go when room is needed.

Room is counted in bytes of weights, known before a model is loaded. A model that a job uses stays. Names of
the same contents are the same model, and its hash is a name too. With another preset it is another one, whose
weights count again. Knows nothing of devices or batches.
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
"""Models that somebody waits for: the first of the ordinary jobs, and the workflow."""


@dataclass
class _CacheEntry:
    about: LoadedModel
    engine: JobEngine
    names: set[str]
    users: int = 0
    unwanted: str | None = None
    """The name by which it is to be let go, as soon as nobody uses it."""


@dataclass(frozen=True)
class Lease:
    """A model that stays until it is released."""

    model: str
    """The same for all names of a model."""
    preset: str | None
    """None is the worker's own."""
    engine: JobEngine
    release: Callable[[], None]


class ModelCache:
    """What is loaded. `on_change` hears of every change, `on_loading` how far loading has come."""

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
        self._held: list[_CacheEntry] = []
        """The most recently used is last."""
        self._awaited: dict[str, LoadedModel] = {}
        """What found no room: reading its files again at every try would cost the others time."""
        self.releases = 0
        """How often a lease has ended: until that changes, what found no room finds none."""

    def lease(self, name: str, preset: str | None = None) -> Lease | None:
        """The model for one job, loaded if need be; None while others' jobs hold the room it needs."""
        preset = None if preset == self._loader.preset else preset
        held = self._known(name, preset) or self._loaded(name, preset)
        if held is None:
            return None
        held.users += 1
        self._held.remove(held)
        self._held.append(held)
        return Lease(held.about.name, preset, held.engine, partial(self._release, held))

    def has_memory(self, name: str, preset: str | None = None) -> bool:
        """Whether `lease` would answer with the model."""
        preset = None if preset == self._loader.preset else preset
        if self._known(name, preset) is not None:
            return True
        about = self._about(name, preset)
        self._await(name, about)
        return self._known(about.sha256, preset) is not None or self._idle_for(about) is not None

    def load(self, name: str) -> bool:
        """Have a model ready; False while others' jobs hold the room it needs."""
        lease = self.lease(name)
        if lease is None:
            return False
        lease.release()
        # Whoever wanted it gone before has been told otherwise, too: this answers both.
        self._held[-1].unwanted = None
        self._tell(asked=name)
        return True

    def unload(self, name: str) -> None:
        """Let a model go with all its presets, as soon as no job uses it."""
        going = [held for held in self._held if name in held.names]
        if not going:
            self._tell(asked=name)
            return
        for held in going:
            held.unwanted = name
        self.evict_unused()

    def release_memory(self) -> None:
        """Have all models give back what they hold without need: who lacks room needs not be who has it."""
        for held in self._held:
            held.engine.release_memory()

    def evict_unused(self) -> None:
        """Let go what is unwanted and unused. Apart from `release`, whose caller still holds the engine."""
        for held in [held for held in self._held if held.unwanted is not None and not held.users]:
            others = any(one.unwanted == held.unwanted for one in self._held if one is not held)
            self._drop(held, asked=None if others else held.unwanted)

    def _known(self, name: str, preset: str | None) -> _CacheEntry | None:
        return next((held for held in self._held if name in held.names and held.about.preset == preset), None)

    def _loaded(self, name: str, preset: str | None) -> _CacheEntry | None:
        about = self._about(name, preset)
        held = self._known(about.sha256, preset)
        if held is not None:
            held.names.add(name)
            return held
        if not self._make_room(about):
            self._await(name, about)
            return None
        _log.info("loading %s", name, extra={"model": name})
        with self._stages.slow(f"loading {name}"):
            held = _CacheEntry(about, self._with_less_and_less(about), {name, about.sha256})
        self._held.append(held)
        _log.info("loaded %s", name, extra={"model": name, "sha256": about.sha256, "bytes": about.bytes})
        self._tell()
        return held

    def _about(self, name: str, preset: str | None) -> LoadedModel:
        about = self._awaited.pop(name, None)
        if about is None:
            with self._stages.slow(f"reading {name}"):
                about = self._loader.describe(name)
        return about.model_copy(update={"preset": preset})

    def _await(self, name: str, about: LoadedModel) -> None:
        self._awaited[name] = about
        while len(self._awaited) > MAX_AWAITED:
            del self._awaited[next(iter(self._awaited))]

    def _with_less_and_less(self, about: LoadedModel) -> JobEngine:
        """Load it; where the device has less room than was counted, idle models go until it fits.

        First goes what models hold without need.
        """
        relieved = not self._held
        while True:
            try:
                return self._loader.load(
                    about.name, _LoadProgress(about.name, self._on_loading), about.preset
                )
            except OutOfMemoryError as error:
                if not relieved:
                    self.release_memory()
                    relieved = True
                    continue
                idle = next((held for held in self._held if not held.users), None)
                if idle is None:
                    rule = f"model {about.name!r} has {about.bytes} bytes of weights, for which the device"
                    raise DoesNotFitError(f"{rule} has no room: {error}; unload another model") from error
                self._drop(idle)

    def _make_room(self, about: LoadedModel) -> bool:
        going = self._idle_for(about)
        for held in going or ():
            _log.info("%s makes room for %s", held.about.name, about.name, extra={"model": about.name})
            self._drop(held)
        return going is not None

    def _idle_for(self, about: LoadedModel) -> list[_CacheEntry] | None:
        """What can go for a model; None while too much is used."""
        if about.bytes > self._memory_bytes:
            raise DoesNotFitError(
                f"model {about.name!r} has {about.bytes} bytes of weights, this worker holds at most "
                f"{self._memory_bytes}; start it with more memory, or use a smaller model or precision"
            )
        missing = about.bytes - self._free_bytes()
        going: list[_CacheEntry] = []
        for held in self._held:
            if missing <= 0:
                break
            if not held.users:
                going.append(held)
                missing -= held.about.bytes
        return going if missing <= 0 else None

    def _drop(self, held: _CacheEntry, *, asked: str | None = None) -> None:
        self._held.remove(held)
        # Old leases refer to what is held, and must not keep all that the engine has on the device.
        del held.engine
        self._loader.release()
        _log.info("unloaded %s", held.about.name, extra={"model": held.about.name})
        self._tell(asked)

    def _release(self, held: _CacheEntry) -> None:
        held.users -= 1
        self.releases += 1

    def _free_bytes(self) -> int:
        return self._memory_bytes - sum(held.about.bytes for held in self._held)

    def _tell(self, asked: str | None = None) -> None:
        self._on_change(
            messages.Models(
                models=tuple(held.about for held in self._held),
                memory_bytes=self._memory_bytes,
                free_bytes=self._free_bytes(),
                asked=asked,
            )
        )


class _LoadProgress:
    """`Progress` as messages, one for each hundredth."""

    def __init__(self, model: str, tell: Callable[[Loading], None]) -> None:
        self._model, self._tell = model, tell
        self._label, self._done, self._total, self._told = "", 0, 0, 0

    def start(self, label: str, total: int) -> None:
        self._label, self._done, self._total, self._told = label, 0, total, 0
        self._send()

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if 100 * self._done // max(1, self._total) > self._told:
            self._send()

    def describe(self, label: str) -> None:
        self._label = label
        self._send()

    def _send(self) -> None:
        self._told = 100 * self._done // max(1, self._total)
        label = f"{self._model}: {self._label}"
        self._tell(Loading(label=label, done=self._done, total=self._total))
