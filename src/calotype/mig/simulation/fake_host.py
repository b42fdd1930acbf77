"""A simulated machine: its GPUs, their slices and processes, and its scheduled failures.

Only state and its file; the operations are in `rules`.
"""

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import atomic_write
from calotype.mig.profiles import GpuModel, model_named

_FORMAT = "calotype.mig-simulation.1"
_NAMES = uuid.UUID("5a1c3f0e-7a46-4f43-9a0c-0d6a1f2b9e11")


@dataclass
class Part:
    """A compute instance."""

    ci: int
    profile_id: int
    start: int
    size: int


@dataclass
class Holder:
    """A process on the GPU; `gi` is None if it uses the whole GPU."""

    pid: int
    name: str
    gi: int | None = None
    used_bytes: int = 0


@dataclass
class FakeInstance:
    """A GPU instance."""

    gi: int
    profile_id: int
    start: int
    parts: list[Part] = field(default_factory=list)


@dataclass
class FakeGpu:
    """One GPU."""

    model: str
    uuid: str
    mirrored: bool = False
    """Some GPUs number their halves in reverse order."""
    passthrough: bool = False
    """A virtual machine's GPU: it cannot be reset from inside."""
    current: bool = False
    pending: bool = False
    lost: bool = False
    cuts: list[FakeInstance] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)

    @property
    def gpu(self) -> GpuModel:
        return model_named(self.model)

    def slice_uuid(self, gi: int, ci: int) -> str:
        """The UUID of a slice; equal if the same slice is created again on the same GPU, as for real ones."""
        return f"MIG-{uuid.uuid5(_NAMES, f'{self.uuid}/{gi}/{ci}')}"


@dataclass
class FakeHost:
    """The machine."""

    cards: list[FakeGpu]
    driver_version: str = "580.159.04"
    loaded: bool = True
    is_root: bool = True
    calls: int = 0
    """Driver calls so far."""
    fail_at: list[int] = field(default_factory=list)
    """Numbers of calls, from 1, that fail."""
    fail_code: int = 999
    fail_late: bool = False
    """Whether such a call takes effect before it reports failure."""
    log: list[str] = field(default_factory=list)
    """Changes, and choices made by an inferred rule."""


def new_host(*models: str, **settings: Any) -> FakeHost:
    """A machine with these GPUs; `settings` apply to every GPU."""
    for name in models:
        model_named(name)
    cards = [
        FakeGpu(model_named(name).name, f"GPU-{uuid.uuid5(_NAMES, f'{name}/{i}')}", **settings)
        for i, name in enumerate(models)
    ]
    return FakeHost(cards)


def write_host(path: Path, host: FakeHost) -> None:
    with atomic_write(path, "w") as file:
        json.dump({"format": _FORMAT, **asdict(host)}, file, indent=1)


def read_host(path: Path) -> FakeHost:
    try:
        values = json.loads(path.read_text("utf-8"))
        if values.pop("format", None) != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT}")
        cards = [_card(entry) for entry in values.pop("cards")]
        return FakeHost(cards, **values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(
            [
                Problem(
                    str(path),
                    f"is not a simulated machine ({error}); create one with `calotype mig simulate`",
                )
            ]
        ) from None


@contextmanager
def shared_host(path: Path) -> Iterator[FakeHost]:
    """Open the machine in a file under an exclusive lock; changes are written back."""
    read_host(path)  # a wrong path should leave no lock file behind
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        host = read_host(path)
        before = asdict(host)
        try:
            yield host
        finally:
            if asdict(host) != before:
                write_host(path, host)


def _card(entry: dict[str, Any]) -> FakeGpu:
    cuts = [
        FakeInstance(**{**cut, "parts": [Part(**part) for part in cut["parts"]]}) for cut in entry["cuts"]
    ]
    return FakeGpu(**{**entry, "cuts": cuts, "holders": [Holder(**each) for each in entry["holders"]]})
