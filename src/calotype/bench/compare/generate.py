"""Generates images one by one and measures their time and memory."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from PIL import Image
from torch import Tensor

from calotype.bench.quality.dataset import scaled
from calotype.core.progress import CancelToken, Progress
from calotype.engine.engine import Engine
from calotype.spec.generate_request import GenerateRequest


@dataclass(frozen=True)
class Seconds:
    """The time of one image."""

    wall: float
    device: float | None
    """Between two CUDA events; None without a GPU."""


@dataclass(frozen=True)
class GeneratedImages:
    """A preset's images with their time and memory."""

    images: Sequence[Image.Image]
    seconds: Sequence[Seconds]
    weights_bytes: int
    resident_bytes: int | None
    peak_bytes: int | None

    def pixels(self) -> Tensor:
        """(number, 3, height, width) in uint8."""
        return torch.stack([scaled(image, image.width) for image in self.images])

    def png_bytes(self) -> list[int]:
        """Size of each image as a PNG file, without its embedded record."""
        return [_png_bytes(image) for image in self.images]


def generate_images(
    engine: Engine, requests: Sequence[GenerateRequest], label: str, progress: Progress, cancel: CancelToken
) -> GeneratedImages:
    """Generate one image for each request, after an unmeasured warm-up with the first one."""
    device = engine.model.device
    on_gpu = device.type == "cuda"

    def generate(request: GenerateRequest) -> Image.Image:
        (image,) = engine.generate(request, cancel=cancel).images
        progress.describe(label)
        progress.advance()
        return image

    progress.start(label, len(requests) + 1)
    generate(requests[0])
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    resident = torch.cuda.memory_allocated(device) if on_gpu else None
    images, seconds = [], []
    for request in requests:
        image, duration = _timed(partial(generate, request), device)
        images.append(image)
        seconds.append(duration)
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else None
    return GeneratedImages(images, seconds, engine.model.weight_bytes, resident, peak)


def free(device: torch.device) -> None:
    """Free the memory of unused engines; they contain reference cycles until garbage collection."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _timed(work: Callable[[], Image.Image], device: torch.device) -> tuple[Image.Image, Seconds]:
    if device.type != "cuda":
        started = time.perf_counter()
        return work(), Seconds(time.perf_counter() - started, None)
    stream = torch.cuda.current_stream(device)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream.synchronize()
    started = time.perf_counter()
    first.record(stream)
    image = work()
    last.record(stream)
    last.synchronize()
    return image, Seconds(time.perf_counter() - started, first.elapsed_time(last) / 1000)


def _png_bytes(image: Image.Image) -> int:
    file = io.BytesIO()
    image.save(file, "PNG")
    return len(file.getvalue())
