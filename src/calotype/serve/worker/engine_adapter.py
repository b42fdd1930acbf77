"""Adapts Calotype's engine to the batcher's protocols."""

from __future__ import annotations

import gc
import hashlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageOps

from calotype.core.errors import Problem, RequestError
from calotype.core.progress import Progress
from calotype.engine.device import (
    choose_device,
    choose_dtype,
    device_name,
    free_memory,
    is_out_of_memory,
    precision_name,
    total_memory,
)
from calotype.engine.engine import EncodedText, Engine, to_generated
from calotype.engine.image_inputs import IN_MEMORY, Inputs
from calotype.engine.load import load
from calotype.engine.memory_planner import MAX_AT_ONCE, MemoryBudget, most_pixels
from calotype.engine.passes.cuda_graph import CUDA_GRAPH
from calotype.engine.presets import pass_names
from calotype.engine.sampling_run import SamplingRun
from calotype.engine.text_encoder import WINDOWS_AT_ONCE
from calotype.engine.vae import DecodedImage
from calotype.imaging.image_io import decode_image, encode_image
from calotype.models.model import vae_dtype
from calotype.models.resolve import resolve_model
from calotype.models.sampling_defaults import sampling_defaults
from calotype.serve.ipc.messages import LoadedModel, SamplingValues, Work
from calotype.serve.worker.cuda_timing import times_on
from calotype.serve.worker.group_scheduler import text_size
from calotype.serve.worker.options import most_rows
from calotype.serve.worker.protocols import About, DeviceLostError, OutOfMemoryError, Png
from calotype.serve.worker.warmup import warm_up_batches
from calotype.spec.generate_request import GenerateRequest, LoraUse
from calotype.spec.records.image import PictureRecord

SHARE_FOR_WEIGHTS = 0.7
"""Default fraction of the free memory at start for weights; the rest is for active images."""


@contextmanager
def device_errors() -> Iterator[None]:
    """Convert torch's device errors to the batcher's exceptions."""
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            # The traceback's frames would keep their tensors in memory.
            traceback.clear_frames(error.__traceback__)
            raise OutOfMemoryError(str(error).partition("\n")[0]) from error
        if isinstance(error, torch.AcceleratorError):
            raise DeviceLostError(str(error)) from error
        _check_device()
        raise


def _check_device() -> None:
    """Raise DeviceLostError if the device is lost: libraries report that with their own errors."""
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise DeviceLostError(str(error)) from error


@dataclass(eq=False)
class EngineJobPlan:
    """A request resolved by an engine, with its input images."""

    engine: RealEngine
    resolved: GenerateRequest
    inputs: Inputs
    record: PictureRecord
    """The record of the first image; the others differ in the seed."""
    most_rows: int | None
    windows: int
    """Token windows of the longer prompt."""
    _text: EncodedText | None = None

    @property
    def request(self) -> dict[str, Any]:
        return self.resolved.as_dict()

    @cached_property
    def seeds(self) -> list[int]:
        return self.resolved.seeds()

    @property
    def shape(self) -> tuple[int | None, int | None]:
        return self.resolved.height, self.resolved.width

    @property
    def loras(self) -> tuple[LoraUse, ...]:
        return self.resolved.loras

    @property
    def rows(self) -> int:
        return _rows_of(self.resolved)

    @property
    def steps(self) -> int:
        return self.resolved.steps

    @property
    def text_size(self) -> int:
        return text_size(self.windows, WINDOWS_AT_ONCE)

    def preparation(self) -> Iterator[None] | None:
        return self._encoded_in_slices() if self.windows > WINDOWS_AT_ONCE else None

    def _encoded_in_slices(self) -> Iterator[None]:
        with device_errors():
            self._text = yield from self.engine.engine.encode_in_slices(self.resolved)

    def begin(self, index: int) -> SamplingRun:
        with device_errors():
            return self.engine.engine.begin(self.resolved, self.inputs, [self.seeds[index]], self._text)

    def finish(self, index: int, run: SamplingRun) -> Callable[[], Png]:
        with device_errors():
            pixels = self.engine.decoded(run, self.resolved)
        values = {**self.record.request, "seed": self.seeds[index]}
        return partial(_encoded, pixels, self.inputs, self.record.model_copy(update={"request": values}))


class RealEngine:
    """`JobEngine` over an `Engine`.

    On a GPU it queues one evaluation while the previous one runs, and no more: the device never idles, and a
    job that joins or stops does not wait for many evaluations. Only the encoder threads wait for pixels.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        device = engine.model.device
        self.shapes_cost = CUDA_GRAPH.name in pass_names(engine.preset, device.type)
        self._evaluations, self._decodes = times_on(device), times_on(device)

    @property
    def evaluation_s(self) -> float:
        return self._evaluations.last_s

    @property
    def evaluation_about(self) -> About | None:
        return self._evaluations.last_about

    @property
    def decode_s(self) -> float:
        return self._decodes.last_s

    def read(self, work: Work, attachments: Sequence[bytes]) -> tuple[GenerateRequest, Inputs]:
        request, inputs = _request_of(work, attachments)
        # Resize the start image now, to keep no large one in memory. If the model decides the size,
        # `prepare` resizes it.
        width, height = inputs.size() or (None, None)
        width, height = request.width or width, request.height or height
        return request, inputs.fitted(width, height) if width and height else inputs

    def prepare(self, _: Work, given: tuple[GenerateRequest, Inputs]) -> EngineJobPlan:
        request, inputs = given
        engine = self.engine
        resolved = engine.resolve_defaults(request, inputs)
        plan = engine.plan_memory(resolved.with_changes(count=MAX_AT_ONCE))
        resolved = resolved.with_changes(tile_vae=plan.tiled)
        assert resolved.width
        assert resolved.height
        inputs = inputs.fitted(resolved.width, resolved.height)
        (record,) = engine.records(resolved.with_changes(count=1))
        # A plan that fits MAX_AT_ONCE images does not tell how many more would fit.
        most = None if plan.batch_size == MAX_AT_ONCE else plan.batch_size * _rows_of(resolved)
        return EngineJobPlan(self, resolved, inputs, record, most, engine.num_windows(resolved))

    def evaluate(
        self, runs: Sequence[SamplingRun], *, least_rows: int, about: About | None = None
    ) -> Sequence[torch.Tensor]:
        with device_errors():
            with self._evaluations.timed(about):
                answers = self.engine.evaluate(runs, least_rows=least_rows)
            self._evaluations.wait_for_all_but_the_last()
        return answers

    def decoded(self, run: SamplingRun, request: GenerateRequest) -> Callable[[], DecodedImage]:
        """Start decoding a run of one image; the returned function waits for the pixels."""
        with self._decodes.timed():
            (decoded,) = self.engine.decode(run, request)
            fetched = [self._decodes.fetched(part) for part in decoded]
        return lambda: DecodedImage(*(part() for part in fetched))

    def preview(self, run: SamplingRun) -> bytes:
        with device_errors():
            (image,) = self.engine.preview(run)
        buffer = BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()

    def release_memory(self) -> None:
        self.engine.release_memory()
        _free_unused()


class RealLoader:
    """Models by the names that `calotype generate` takes, on one device."""

    def __init__(
        self,
        *,
        device: str | None = None,
        precision: str | None = None,
        preset: str = "baseline",
        models_folder: Path | None = None,
        paths: Mapping[str, str] | None = None,
        warm: bool = False,
        max_rows: int | None = None,
    ) -> None:
        """`paths` maps names to the paths of the models that the worker loads at start.

        With `warm` their first load also warms up every batch size up to `max_rows` rows.
        """
        self._chosen = choose_device(device)
        self._dtype = choose_dtype(precision, self._chosen)
        self._models_folder, self._paths, self._warm = models_folder, dict(paths or {}), warm
        self.device, self.preset = device_name(self._chosen), preset
        self.precision = precision_name(self._dtype)
        self.memory_bytes = int(free_memory(self._chosen)[0] * SHARE_FOR_WEIGHTS)
        self._most_rows = most_rows(max_rows, self.device)
        self._to_warm = set(self._paths) if warm else set()

    def describe(self, name: str) -> LoadedModel:
        model = resolve_model(self._paths.get(name, name), models=self._models_folder)
        with model.weights as weights:
            architecture = weights.architecture
            sizes = {
                part: sum(prod(shape) for shape in architecture.tensor_shapes(part).values())
                for part in architecture.parts()
            }
        of_vae = vae_dtype(architecture, self._dtype)
        weight_bytes = {
            part: n * (of_vae if part == "vae" else self._dtype).itemsize for part, n in sizes.items()
        }
        # The text encoders can be offloaded while the UNet runs.
        available = max(0, total_memory(self._chosen) - weight_bytes["unet"] - weight_bytes["vae"])
        budget = MemoryBudget(available, self.device, self._dtype.itemsize, of_vae.itemsize)
        identity = model.identity
        return LoadedModel(
            name=name,
            architecture=identity.architecture,
            sha256=identity.sha256,
            random=identity.random,
            bytes=sum(weight_bytes.values()),
            max_pixels=most_pixels(architecture, budget),
            sampling=SamplingValues(**asdict(sampling_defaults(architecture))),
        )

    def load(self, name: str, progress: Progress, preset: str | None = None) -> RealEngine:
        with device_errors():
            engine = load(
                self._paths.get(name, name),
                device=str(self._chosen),
                precision=self.precision,
                preset=preset or self.preset,
                models_folder=self._models_folder,
                warm=self._warm,
                progress=progress,
            )
            real = RealEngine(engine)
            # Warm up only the first load: a reload finds its kernels tuned and should not delay other jobs.
            if name in self._to_warm and real.shapes_cost:
                self._to_warm.remove(name)
                warm_up_batches(engine, self._most_rows, progress)
        return real

    def release(self) -> None:
        gc.collect()
        _free_unused()


def _request_of(work: Work, attachments: Sequence[bytes]) -> tuple[GenerateRequest, Inputs]:
    """Return the request with its attached images; never read files that it names."""
    values, remaining = dict(work.request), list(attachments)
    images: dict[str, Image.Image] = {}
    for field, attached in (("image", work.has_image), ("mask", work.has_mask)):
        if attached:
            data = remaining.pop(0)
            images[field] = ImageOps.exif_transpose(decode_image(data, f"the {field}"))
            values[field] = {"path": _name_of(values.get(field)), "sha256": hashlib.sha256(data).hexdigest()}
        elif values.get(field) is not None:
            raise RequestError([Problem(field, "the server reads no files by name; send the image itself")])
    return GenerateRequest.parse(values), Inputs(images.get("image"), images.get("mask"))


def _name_of(value: object) -> str:
    """Return the client's name of an image; it is recorded and never opened."""
    name = value.get("path") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else IN_MEMORY


def _rows_of(request: GenerateRequest) -> int:
    return 1 if request.cfg == 1 else 2


def _encoded(decode: Callable[[], DecodedImage], inputs: Inputs, record: PictureRecord) -> Png:
    image = to_generated(decode(), inputs)
    return Png(encode_image(image, "png", record), image.width, image.height)


def _free_unused() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
