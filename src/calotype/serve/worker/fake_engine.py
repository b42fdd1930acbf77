"""A fake engine that returns tiny images at once, to test and measure everything around an engine.

A prompt can make it fail: see `FAULTS`. Runs without torch.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from io import BytesIO
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.core.progress import Progress
from calotype.serve.ipc.messages import LoadedModel, Work
from calotype.serve.worker.protocols import About, ImageRun, OutOfMemoryError, Png
from calotype.spec.generate_request import GenerateRequest

FAULTS = {
    "fault:open": "the request is refused",
    "fault:begin": "an image cannot be started",
    "fault:evaluate": "every evaluation with this job fails",
    "fault:sampler": "the job's own part of a step fails",
    "fault:decode": "an image cannot be decoded",
    "fault:encode": "an image cannot be encoded",
    "fault:kill": "the process kills itself at the first evaluation",
    "fault:slow": "an evaluation takes 20 ms",
    "fault:hang": "an evaluation never ends",
}
SLOW_S = 0.02
SIDE = 8
WEIGHT_BYTES = 1000
MAX_RECORDED = 1000


@dataclass(eq=False)
class FakeRun:
    """Counts its steps."""

    prompt: str
    total_steps: int
    rows: int
    steps_done: int = 0

    @property
    def done(self) -> bool:
        return self.steps_done >= self.total_steps

    def send(self, answer: Any) -> bool:
        assert answer == self.prompt, "each run gets its own answer"
        _fail_on(self.prompt, "fault:sampler")
        self.steps_done += 1
        return True


@dataclass(frozen=True)
class FakeJobPlan:
    """A request, by default at 64×64."""

    parsed: GenerateRequest
    most_rows: int | None = None

    @property
    def request(self) -> dict[str, Any]:
        return self.parsed.settled().as_dict()

    @cached_property
    def seeds(self) -> list[int]:
        return self.parsed.seeds()

    @property
    def shape(self) -> tuple[int | None, int | None]:
        return self.parsed.height, self.parsed.width

    @property
    def loras(self) -> tuple[Any, ...]:
        return self.parsed.loras

    @property
    def rows(self) -> int:
        return 1 if self.parsed.cfg == 1 else 2

    @property
    def steps(self) -> int:
        return self.parsed.steps

    @property
    def text_size(self) -> int:
        return 1

    def preparation(self) -> Iterator[None] | None:
        return None

    def begin(self, _: int) -> FakeRun:
        _fail_on(self.parsed.prompt, "fault:begin")
        return FakeRun(self.parsed.prompt, self.parsed.steps, self.rows)

    def finish(self, index: int, run: ImageRun) -> Callable[[], Png]:
        assert run.done
        _fail_on(self.parsed.prompt, "fault:decode")
        return partial(_encoded, self.parsed.prompt, self.seeds[index])


@dataclass
class FakeEngine:
    """Returns each run's prompt as its result."""

    out_of_memory_over: int | None = None
    """More rows than this run out of memory."""
    shapes_cost: bool = False
    evaluation_s: float = 0.0
    evaluation_about: About | None = None
    decode_s: float = 0.0
    evaluated: list[list[str]] = field(default_factory=list)
    """The prompts of each of the last evaluations; `rows` has their rows."""
    rows: list[int] = field(default_factory=list)

    def read(self, work: Work, attachments: Sequence[bytes]) -> Sequence[bytes]:
        assert len(attachments) == work.has_image + work.has_mask
        return attachments

    def prepare(self, work: Work, _given: Sequence[bytes]) -> FakeJobPlan:
        request = GenerateRequest.parse(work.request)
        if "fault:open" in request.prompt:
            raise RequestError([Problem("prompt", "the prompt requests a rejection", request.prompt)])
        sized = request.with_changes(width=request.width or 64, height=request.height or 64)
        return FakeJobPlan(sized)

    def evaluate(
        self, runs: Sequence[FakeRun], *, least_rows: int, about: About | None = None
    ) -> Sequence[str]:
        rows = max(least_rows, sum(run.rows for run in runs))
        self.evaluation_about = about
        self.evaluated.append([run.prompt for run in runs])
        self.rows.append(rows)
        if len(self.rows) > 2 * MAX_RECORDED:
            del self.evaluated[:-MAX_RECORDED], self.rows[:-MAX_RECORDED]
        for run in runs:
            _fail_on(run.prompt, "fault:evaluate")
            if "fault:kill" in run.prompt:
                os.kill(os.getpid(), signal.SIGKILL)
        if any("fault:slow" in run.prompt for run in runs):
            time.sleep(SLOW_S)
        if any("fault:hang" in run.prompt for run in runs):
            signal.pause()
        if self.out_of_memory_over is not None and rows > self.out_of_memory_over:
            raise OutOfMemoryError(f"{rows} rows, {self.out_of_memory_over} fit")
        return [run.prompt for run in runs]

    def preview(self, _: ImageRun) -> bytes:
        return _png(0)

    def release_memory(self) -> None:
        """Do nothing: there is no cache."""


@dataclass(frozen=True)
class FakeLoader:
    """Accepts any name as a model of 1000 bytes; ten of them fit."""

    out_of_memory_over: int | None = None
    device: str = "nothing"
    preset: str = "nothing"
    precision: str = "nothing"
    memory_bytes: int = 10 * WEIGHT_BYTES

    def describe(self, name: str) -> LoadedModel:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return LoadedModel(name=name, architecture="none", sha256=digest, random=True, bytes=WEIGHT_BYTES)

    def load(self, _: str, progress: Progress, _preset: str | None = None) -> FakeEngine:
        progress.start("loading", 1)
        progress.advance()
        return FakeEngine(self.out_of_memory_over)

    def release(self) -> None:
        """Do nothing: there is no memory to free."""


def _fail_on(prompt: str, fault: str) -> None:
    if fault in prompt:
        raise RuntimeError(f"{fault}: {FAULTS[fault]}")


def _encoded(prompt: str, seed: int) -> Png:
    _fail_on(prompt, "fault:encode")
    return Png(_png(seed % 256), SIDE, SIDE)


@cache
def _png(grey: int) -> bytes:
    from PIL import Image  # noqa: PLC0415 - slow import, only needed for images

    buffer = BytesIO()
    Image.new("L", (SIDE, SIDE), grey).save(buffer, "PNG")
    return buffer.getvalue()
