"""A batcher on engines that do nothing, and what it said. Knows nothing of any test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from calotype.core.errors import NotFoundError
from calotype.core.progress import Progress
from calotype.serve.ipc.messages import Evaluated, Failed, Finished, Load, LoadedModel, Stepped, Stopped, Work
from calotype.serve.worker.batcher import Batcher
from calotype.serve.worker.fake_engine import FakeEngine
from calotype.serve.worker.image_encoder import ImageEncoder
from calotype.serve.worker.model_cache import ModelCache
from calotype.serve.worker.progress_stages import Stages
from calotype.serve.worker.protocols import JobEngine, Loader, OutOfMemoryError

Message = TypeVar("Message")


@dataclass
class Shelf:
    """`Loader` of idle engines that keeps those it made; a model's bytes are the number in its name."""

    memory_bytes: int = 100
    make: Any = FakeEngine
    """What becomes of a name: called without arguments."""
    really_fits: int = 10**9
    """Bytes that the device has, whatever was counted."""
    made: dict[str, FakeEngine] = field(default_factory=dict)
    described: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    let_go_of: int = 0
    device: str = "nothing"
    preset: str = "nothing"
    precision: str = "nothing"

    def describe(self, name: str) -> LoadedModel:
        self.described.append(name)
        return self._about(name)

    def _about(self, name: str) -> LoadedModel:
        if name.startswith("missing"):
            raise NotFoundError(f"no model {name!r}")
        contents, _, size = name.partition("-")
        bytes_ = int(size or 10)
        return LoadedModel(
            name=name, architecture="none", sha256=f"sha:{contents}", random=True, bytes=bytes_
        )

    def load(self, name: str, progress: Progress, preset: str | None = None) -> JobEngine:
        name = name if preset is None else f"{preset}:{name}"
        self.loads.append(name)
        held = sum(self._about(one).bytes for one in self.loads) - self.let_go_of * 10
        if held > self.really_fits:
            self.loads.pop()
            raise OutOfMemoryError("the device is full")
        progress.start("loading", 400)
        for _ in range(400):
            progress.advance()
        self.made[name] = self.make()
        return self.made[name]

    def release(self) -> None:
        self.let_go_of += 1


class Bench:
    """Jobs by their prompts; a job's id is its prompt."""

    def __init__(self, loader: Loader | None = None, *, most_rows: int = 8, **options: Any) -> None:
        self._loader = loader or Shelf()
        self.messages: list[tuple[Any, Sequence[bytes]]] = []
        self.stages = Stages(self.say)
        self.models = ModelCache(self._loader, on_change=self.say, on_loading=self.say, stages=self.stages)
        self.finishing = ImageEncoder(self.say)
        self.batcher = Batcher(
            self.models, self.say, self.finishing, most_rows=most_rows, stages=self.stages, **options
        )

    def say(self, message: Any, attachments: Sequence[bytes] = ()) -> None:
        self.messages.append((message, attachments))

    @property
    def shelf(self) -> Shelf:
        assert isinstance(self._loader, Shelf)
        return self._loader

    @property
    def engine(self) -> FakeEngine:
        return self.shelf.made["m"]

    def add(
        self,
        prompt: str,
        *,
        model: str = "m",
        preset: str | None = None,
        previews: bool = False,
        **knobs: Any,
    ) -> None:
        request = {"prompt": prompt, "steps": 2, "cfg": 1.0, **knobs}
        self.batcher.add(Work(job_id=prompt, model=model, preset=preset, request=request, previews=previews))

    def load(self, model: str) -> None:
        self.batcher.add(Load(model=model))

    def turns(self, number: int) -> None:
        for _ in range(number):
            self.batcher.step()

    def rest(self) -> None:
        """Turns until there is nothing left to do."""
        for _ in range(10_000):
            if not self.batcher.step():
                break
        else:
            raise AssertionError("the batcher never comes to rest")

    def to_the_end(self) -> None:
        """Turns until there is nothing left to do and all files are made. Once."""
        self.rest()
        self.finishing.close()

    def heard(self, kind: type[Message]) -> list[Message]:
        return [message for message, _ in self.messages if isinstance(message, kind)]

    def finished(self) -> set[str]:
        return {message.job_id for message in self.heard(Finished)}

    def failed(self) -> dict[str, str]:
        """Job → kind of failure."""
        return {message.job_id: message.failure.kind for message in self.heard(Failed)}

    def stopped(self) -> set[str]:
        return {message.job_id for message in self.heard(Stopped)}

    def steps(self, job_id: str) -> list[tuple[int, int]]:
        """In the order they were told, with a preview or without."""
        told: list[tuple[int, int]] = []
        for message, _ in self.messages:
            if isinstance(message, Stepped) and message.job_id == job_id:
                told.append((message.steps_done, message.steps_total))
            elif isinstance(message, Evaluated) and job_id in message.steps:
                told.append(message.steps[job_id])
        return told

    def endings(self) -> list[str]:
        """The job of every Finished, Failed and Stopped."""
        kinds = (Finished, Failed, Stopped)
        return [message.job_id for message, _ in self.messages if isinstance(message, kinds)]
