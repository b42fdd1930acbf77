"""What the batcher asks of an engine, whatever that is. Knows nothing of torch, batches or messages' ways."""

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
    """The device had no room for this; it may have for less."""


class DeviceLostError(BaseException):
    """The device answers nothing any more: only a new process can use it again.

    No Exception, so that whoever handles a job's failure does not take it for one.
    """


class ImageRun(Protocol):
    """One picture being sampled."""

    @property
    def total_steps(self) -> int: ...

    @property
    def steps_done(self) -> int: ...

    @property
    def done(self) -> bool: ...

    def send(self, answer: Any) -> bool:
        """Take the answer of an evaluation; True when that completed a step."""
        ...


@dataclass(frozen=True)
class Png:
    """A picture file."""

    data: bytes
    width: int
    height: int


class JobPlan(Protocol):
    """A job's request as a model is going to run it."""

    @property
    def request(self) -> dict[str, Any]:
        """With everything filled in that the model decided."""
        ...

    @property
    def seeds(self) -> Sequence[int]:
        """One for each picture."""
        ...

    @property
    def shape(self) -> Hashable:
        """Of a latent: pictures of one shape can share evaluations."""
        ...

    @property
    def loras(self) -> Hashable:
        """What is merged into the weights: pictures of different sets cannot share evaluations."""
        ...

    @property
    def rows(self) -> int:
        """That one picture takes in an evaluation, at most."""
        ...

    @property
    def steps(self) -> int:
        """Of each picture, about."""
        ...

    @property
    def most_rows(self) -> int | None:
        """That memory is expected to hold at this shape; None if there is no telling."""
        ...

    @property
    def text_size(self) -> int:
        """1 for prompts of usual length; see `turns.text_size`."""
        ...

    def preparation(self) -> Iterator[None] | None:
        """Long work on the text before the first picture, in slices; None where the text is short."""
        ...

    def begin(self, index: int) -> ImageRun:
        """Start a picture."""
        ...

    def finish(self, index: int, run: Any) -> Callable[[], Png]:
        """Decode a picture that is done; the rest, which any thread may do, is a call of the answer."""
        ...


About = tuple[Hashable, int]
"""Of an evaluation: its shape and its rows."""


class JobEngine(Protocol):
    """One loaded model. For one thread."""

    @property
    def shapes_cost(self) -> bool:
        """Whether a number of rows that was not evaluated before costs extra."""
        ...

    @property
    def evaluation_s(self) -> float:
        """Seconds that the last evaluation took that is over."""
        ...

    @property
    def evaluation_about(self) -> About | None:
        """What was said of that evaluation when it was asked for; None before the first."""
        ...

    @property
    def decode_s(self) -> float:
        """Seconds that the last decode took that is over."""
        ...

    def read(self, work: Work, attachments: Sequence[bytes]) -> Any:
        """Decode the images that came with a request, for `open`; any thread may do it."""
        ...

    def prepare(self, work: Work, given: Any) -> JobPlan:
        """Read a request; refuses with a CalotypeError what cannot be done."""
        ...

    def evaluate(self, runs: Sequence[Any], *, least_rows: int, about: About | None = None) -> Sequence[Any]:
        """What each run is to receive, from one evaluation of at least so many rows; changes no run."""
        ...

    def preview(self, run: Any) -> bytes:
        """A small PNG of what is there so far."""
        ...

    def release_memory(self) -> None:
        """Give memory back that is held without need, or only to be faster."""
        ...


class Loader(Protocol):
    """Where models come from, and what they run on."""

    @property
    def device(self) -> str:
        """Its name for people."""
        ...

    @property
    def preset(self) -> str:
        """Of models for which none is chosen."""
        ...

    @property
    def precision(self) -> str: ...

    @property
    def memory_bytes(self) -> int:
        """What the device has to give to weights when nobody says how much."""
        ...

    def describe(self, name: str) -> LoadedModel:
        """What a model is, before it is loaded."""
        ...

    def load(self, name: str, progress: Progress, preset: str | None = None) -> JobEngine:
        """With a preset, or with the worker's own."""
        ...

    def release(self) -> None:
        """An engine was dropped: its memory may be used for others."""
        ...


_KINDS: dict[ExitCode, FailureKind] = {
    ExitCode.BAD_REQUEST: "bad_request",
    ExitCode.BAD_MODEL_FILE: "bad_model_file",
    ExitCode.NOT_FOUND: "not_found",
    ExitCode.DOES_NOT_FIT: "does_not_fit",
    ExitCode.OFFLINE: "not_found",
}


def failure_of(error: Exception) -> JobFailure:
    """What a client is told of an error."""
    if isinstance(error, CalotypeError):
        return JobFailure(kind=_KINDS.get(error.exit_code, "internal"), message=redact_paths(error))
    return JobFailure(kind="internal", message=f"{type(error).__name__}: {redact_paths(error)}")
