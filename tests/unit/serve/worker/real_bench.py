"""A batcher on a real engine, and jobs that differ in all they can. Knows nothing of any test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from PIL import Image

from calotype.serve.ipc.messages import Failed, Finished, LoadedModel
from calotype.serve.worker.engine_adapter import RealEngine
from tests.engines import difference
from tests.unit.serve.worker.bench import Bench


@dataclass
class One:
    """`Loader` of one engine under any name."""

    engine: RealEngine
    device: str = "cpu"
    preset: str = "baseline"
    precision: str = "fp32"
    memory_bytes: int = 10

    def describe(self, name: str) -> LoadedModel:
        return LoadedModel(name=name, architecture="x", sha256=name, random=True, bytes=1)

    def load(self, *_: object) -> RealEngine:
        return self.engine

    def release(self) -> None:
        pass


def bench_of(engine: RealEngine, **options: Any) -> Bench:
    return Bench(One(engine), **options)


def files_of(bench: Bench) -> dict[str, Sequence[bytes]]:
    assert not bench.heard(Failed)
    return {message.job_id: files for message, files in bench.messages if isinstance(message, Finished)}


def pictures_of(bench: Bench) -> dict[str, list[Image.Image]]:
    return {job: [Image.open(BytesIO(file)) for file in files] for job, files in files_of(bench).items()}


def most_difference(one: Sequence[Image.Image], other: Sequence[Image.Image]) -> int:
    return max(difference(*pair) for pair in zip(one, other, strict=True))


SIX: list[dict[str, Any]] = [
    {"prompt": "a red apple, twemoji style", "steps": 4, "cfg": 4.0, "sampler": "dpmpp_2m", "seed": 1},
    {"prompt": "a dog face, noto style, " * 8, "steps": 3, "cfg": 7.5, "sampler": "heun", "seed": 2},
    {"prompt": "a mage", "steps": 4, "cfg": 1.0, "sampler": "euler", "seed": 3, "schedule": "normal"},
    {"prompt": "a cook", "steps": 4, "cfg": 2.0, "sampler": "euler_ancestral", "seed": 4, "count": 2},
    {"prompt": "a circle", "steps": 2, "cfg": 5.0, "sampler": "dpmpp_2m_sde", "negative_prompt": "blue"},
    {"prompt": "a student", "steps": 3, "cfg": 4.0, "sampler": "uni_pc", "seed": 6, "clip_skip": 1},
]
