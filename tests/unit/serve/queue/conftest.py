"""A queue in a folder of its own, with clocks that stand still until they are moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.queue import Clock, GeneratedImage, JobQueue
from calotype.serve.queue.repository.enqueue import NewJob


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Hands:
    """Both clocks' hands, moved by hand."""

    wall: float = 1_000_000.0
    monotonic: float = 50.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.monotonic)

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def hands() -> Hands:
    return Hands()


OpenQueue = Callable[..., JobQueue]


@pytest.fixture
def open_queue(tmp_path: Path, hands: Hands) -> OpenQueue:
    """Opens the same folder each time."""

    def open_(**limits: int | float) -> JobQueue:
        return JobQueue(tmp_path / "deployment", QueueLimits.model_validate(limits), hands.clock())

    return open_


def asked(prompt: str = "an apple", client: str = "ann", **knobs: object) -> NewJob:
    return NewJob(client=client, model="emoji", request={"prompt": prompt, "steps": 4}, **knobs)  # type: ignore[arg-type]


def picture(text: str = "pixels", seed: int = 7) -> GeneratedImage:
    return GeneratedImage(text.encode(), 64, 48, seed)
