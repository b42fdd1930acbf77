"""Protocols that the batcher requires of an engine; they need no torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from calotype.core.errors import CalotypeError, ExitCode
from calotype.core.progress import Progress
from calotype.core.redaction import redact_paths
from calotype.serve.ipc.messages import LoadedModel, Work
from calotype.spec.job import FailureKind, JobFailure


class OutOfMemoryError(Exception):
    """The device is out of memory; a smaller batch may fit."""


class DeviceLostError(BaseException):
    """The device is lost: only a new process can use it again.

    Not an Exception, so that handlers of job failures do not catch it.
    """


class ImageRun(Protocol):
    """The sampling of one image."""

    @property
    def total_steps(self) -> int: ...

    @property
    def steps_done(self) -> int: ...

    @property
    def done(self) -> bool: ...

    def send(self, answer: Any) -> bool:
        """Take the result of an evaluation; return True if that completed a step."""
        ...


@dataclass(frozen=True)
class Png:
    """An encoded PNG file."""

    data: bytes
    width: int
    height: int


class JobPlan(Protocol):
    """A job's request with everything that the model decides."""

    @property
    def request(self) -> dict[str, Any]:
        """The request with all defaults of the model."""
        ...

    @property
    def seeds(self) -> Sequence[int]:
        """One seed per image."""
        ...

    @property
    def shape(self) -> Hashable:
        """The size of the latents: images of one shape can share evaluations."""
        ...

    @property
    def loras(self) -> Hashable:
        """The LoRAs merged into the weights: images with different sets cannot share evaluations."""
        ...

    @property
    def rows(self) -> int:
        """The most rows that one image takes in an evaluation."""
        ...

    @property
    def steps(self) -> int:
        """Approximate steps of each image."""
        ...

    @property
    def most_rows(self) -> int | None:
        """The rows expected to fit into memory at this shape; None if unknown."""
        ...

    @property
    def text_size(self) -> int:
        """1 for prompts of usual length; see `group_scheduler.text_size`."""
        ...

    def preparation(self) -> Iterator[None] | None:
        """Encode a long prompt in slices before the first image; None for a short prompt."""
        ...

    def begin(self, index: int) -> ImageRun:
        """Start an image."""
        ...

    def finish(self, index: int, run: Any) -> Callable[[], Png]:
        """Decode a finished image; the returned function encodes it, in any thread."""
        ...


About = tuple[Hashable, int]
"""Shape and rows of an evaluation."""


class JobEngine(Protocol):
    """One loaded model. Not thread-safe."""

    @property
    def shapes_cost(self) -> bool:
        """Whether the first evaluation of each batch size costs extra."""
        ...

    @property
    def evaluation_s(self) -> float:
        """Duration of the last completed evaluation, in seconds."""
        ...

    @property
    def evaluation_about(self) -> About | None:
        """The `about` argument of that evaluation; None before the first."""
        ...

    @property
    def decode_s(self) -> float:
        """Duration of the last completed decode, in seconds."""
        ...

    def read(self, work: Work, attachments: Sequence[bytes]) -> Any:
        """Decode the images of a request, for `prepare`; thread-safe."""
        ...

    def prepare(self, work: Work, given: Any) -> JobPlan:
        """Resolve a request; raises CalotypeError if it cannot run."""
        ...

    def evaluate(self, runs: Sequence[Any], *, least_rows: int, about: About | None = None) -> Sequence[Any]:
        """Evaluate the runs, padded to `least_rows`; return the result for each, and change no run."""
        ...

    def preview(self, run: Any) -> bytes:
        """Return a small PNG of the current state."""
        ...

    def release_memory(self) -> None:
        """Release caches and unused memory."""
        ...


class Loader(Protocol):
    """Loads models onto a device."""

    @property
    def device(self) -> str:
        """The display name of the device."""
        ...

    @property
    def preset(self) -> str:
        """The default preset."""
        ...

    @property
    def precision(self) -> str: ...

    @property
    def memory_bytes(self) -> int:
        """The default memory for weights."""
        ...

    def describe(self, name: str) -> LoadedModel:
        """Describe a model without loading it."""
        ...

    def load(self, name: str, progress: Progress, preset: str | None = None) -> JobEngine:
        """Load a model with a preset, by default the worker's."""
        ...

    def release(self) -> None:
        """Free the memory of dropped engines."""
        ...


_KINDS: dict[ExitCode, FailureKind] = {
    ExitCode.BAD_REQUEST: "bad_request",
    ExitCode.BAD_MODEL_FILE: "bad_model_file",
    ExitCode.NOT_FOUND: "not_found",
    ExitCode.DOES_NOT_FIT: "does_not_fit",
    ExitCode.OFFLINE: "not_found",
}


def failure_of(error: Exception) -> JobFailure:
    """Convert an error to the failure that the client sees."""
    if isinstance(error, CalotypeError):
        return JobFailure(kind=_KINDS.get(error.exit_code, "internal"), message=redact_paths(error))
    return JobFailure(kind="internal", message=f"{type(error).__name__}: {redact_paths(error)}")
