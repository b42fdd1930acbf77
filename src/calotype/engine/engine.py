"""The inference engine: a model and a preset turn requests into images.

`generate` is `begin`, `step` until done, `finish`. A server calls these three itself, with many runs at
once: one `step` is one UNet evaluation for all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from calotype.core.errors import DoesNotFitError, Problem, RequestError
from calotype.core.paths import models_dir
from calotype.core.progress import CancelToken, Progress, Silent
from calotype.engine.adapters import AdapterResolver
from calotype.engine.artifacts.shapes import Shape
from calotype.engine.capabilities import check_model, resolve_defaults, schedule_of
from calotype.engine.compile.manager import CompileManager
from calotype.engine.denoiser import DenoiseInput, Denoiser, Guidance
from calotype.engine.device import free_memory, is_out_of_memory
from calotype.engine.image_inputs import Inputs, Source, load_image_inputs
from calotype.engine.image_record import image_records
from calotype.engine.img2img import init_latents
from calotype.engine.memory_planner import MemoryBudget, MemoryDemand, MemoryPlan, plan_memory
from calotype.engine.presets import Networks, build_preset
from calotype.engine.preview import Preview
from calotype.engine.sampling_run import SamplingRun
from calotype.engine.text_encoder import Conditioning, TextConditioner
from calotype.engine.unet_runner import UNetRunner
from calotype.engine.vae import DecodedImage, RawVae, Vae, to_pil, to_uint8
from calotype.models.model import Model
from calotype.sampling import NoiseStream, begin, options_of_run, sigmas_of_run, start_of_run
from calotype.sampling.noise import add_scaled_noise
from calotype.spec.generate_request import GenerateRequest, LoraUse
from calotype.spec.records.image import PictureRecord

AESTHETIC_SCORES = (6.0, 2.5)
"""The scores that SDXL's refiner reads with the positive and the negative prompt, as its authors set them."""
MAX_SIZES = 64
"""SDXL size rows that are cached."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """A completed step of one batch."""

    done: int
    total: int
    batch: int
    """Which batch of the request this is, from 0."""
    num_batches: int
    latents: Tensor
    """The latest estimate of the batch's finished latents."""
    _preview: Preview

    def preview(self) -> list[Image.Image]:
        """A small preview of each image of the batch."""
        return self._preview.images(self.latents)


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A request's encoded prompts."""

    positive: Conditioning
    negative: Conditioning | None
    rewritten: int
    """Version of the model folder's files that they were encoded with."""


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class Generated:
    """Images and, for each, the record that reproduces it."""

    images: list[Image.Image] = field(default_factory=list)
    records: list[PictureRecord] = field(default_factory=list)


class Engine:
    """Runs requests on one model. Not thread-safe: a LoRA changes the model that all runs share."""

    def __init__(
        self,
        model: Model,
        *,
        preset: str = "baseline",
        models_folder: Path | None = None,
        compiled: Mapping[str, Path] | None = None,
        networks: Networks | None = None,
    ) -> None:
        """`compiled` maps regions to prebuilt artifacts; `networks` replaces the preset's networks."""
        check_model(model)
        self.schedule = schedule_of(model)
        self._networks = networks or build_preset(model, preset, kept=compiled)
        self._denoiser = Denoiser(
            model,
            self.schedule,
            self._networks.unet,
            self._networks.guided_between,
            shared_latents=self._networks.shared_latents,
        )
        self.model = model
        self.preset = preset
        self._resources = AdapterResolver(model, models_folder or models_dir())
        self._text = TextConditioner(
            model,
            self._resources.embedding,
            offload=self._networks.text_aside,
            run=self._networks.run_text,
        )
        # The same tensor for the same sizes: networks use it as a cache key.
        self._sizes_row = lru_cache(MAX_SIZES)(partial(_row_of, model.device))
        self._preview = Preview(model, self._networks.decode)
        self._weights_resident = False

    def generate(
        self,
        request: GenerateRequest | str,
        *,
        image: Source | None = None,
        mask: Source | None = None,
        batch_size: int | None = None,
        on_step: OnStep | None = None,
        cancel: CancelToken | None = None,
        **knobs: Any,
    ) -> Generated:
        """Generate images for a request, or for a prompt with the fields of GenerateRequest as keywords."""
        values = {"prompt": request} if isinstance(request, str) else request.as_dict()
        parsed, inputs = load_image_inputs({**values, **knobs}, image, mask)
        resolved = self.resolve_defaults(parsed, inputs)
        plan = self.plan_memory(resolved, batch_size)
        resolved = resolved.with_changes(tile_vae=plan.tiled)
        seeds, generated = resolved.seeds(), Generated()
        starts = range(0, resolved.count, plan.batch_size)
        records = self.records(resolved)
        with _explain_out_of_memory(resolved, self.model.device):
            for batch, start in enumerate(starts):
                run = self.begin(resolved, inputs, seeds[start : start + plan.batch_size])
                for _ in self._steps(run, cancel or CancelToken()):
                    if on_step:
                        on_step(self._step_event(run, batch, len(starts)))
                generated.images.extend(self.finish(run, resolved, inputs))
        generated.records.extend(records)
        return generated

    def records(self, request: GenerateRequest) -> list[PictureRecord]:
        """The record of each image of a resolved request."""
        return image_records(self.model, self.preset, request, self._resources.digests(request))

    def preview(self, run: SamplingRun) -> list[Image.Image]:
        """A small preview of each image of a run that has completed a step."""
        assert run.latents is not None
        return self.previews(run.latents)

    def warm_up(self, shapes: Sequence[Shape], progress: Progress | None = None) -> None:
        """Generate and discard images of each shape, so that nothing is left to compile or to capture."""
        reporter = progress or Silent()
        reporter.start("warming up", len(shapes))
        for shape in shapes:
            reporter.describe(f"warming up {shape}")
            self.generate(
                "",
                width=shape.width,
                height=shape.height,
                count=shape.count,
                batch_size=shape.count,
                sampler="euler",
                steps=self._networks.settled_after,
            )
            reporter.advance()

    def warm_up_batch(self, request: GenerateRequest, count: int) -> None:
        """Run and discard a batch of `count` images of a request, until nothing is left to capture."""
        batch = request.with_changes(count=count, steps=self._networks.settled_after)
        run = self.begin(batch, Inputs(), batch.seeds())
        for _ in range(self._networks.settled_after):
            self.step([run])

    def finish_compiling(self) -> int | None:
        """Wait for background compilation; return the number of regions compiled since the start, None if the
        preset never compiles in the background."""
        runs = self._networks.runs
        if not isinstance(runs, CompileManager) or not runs.compiles:
            return None
        runs.finish()
        return runs.changes

    def encode(self, prompt: str | tuple[str, ...], clip_skip: int = 0) -> Conditioning:
        """Encode a prompt, or one prompt for each text encoder, with the LoRAs in use."""
        self._refresh_adapters()
        return self._text.encode(prompt, clip_skip)

    def num_windows(self, request: GenerateRequest) -> int:
        """Number of token windows of the longer of a request's prompts."""
        return max(self._text.num_windows(text) for text in (request.prompt, request.negative_prompt or ""))

    def encode_in_slices(self, request: GenerateRequest) -> Generator[None, None, EncodedText]:
        """Encode a resolved request's prompts for `begin`; other runs may be evaluated whenever it yields."""
        self._refresh_adapters()
        rewritten = self._resources.rewritten
        slices = self._conditionings(request)
        while True:
            # Runs that were evaluated since the last slice may use other LoRAs.
            self.use_loras(request.loras)
            try:
                next(slices)
            except StopIteration as end:
                positive, negative = end.value
                return EncodedText(positive, negative, rewritten)
            yield

    def denoise(self, inputs: Sequence[DenoiseInput], network: UNetRunner | None = None) -> list[Tensor]:
        """Denoised estimates for inputs of one shape, with the LoRAs in use; one UNet evaluation.

        `network`, if given, is used instead of the preset's.
        """
        denoiser = self._denoiser if network is None else Denoiser(self.model, self.schedule, network)
        return denoiser.denoise(inputs)

    def vae(self) -> RawVae:
        """The model's own VAE, run as the preset says, with unscaled latents."""
        self._resources.use_vae(None)
        return RawVae(self.model.vae, self._networks.decode)

    def previews(self, latents: Tensor) -> list[Image.Image]:
        """A small preview image of each latent."""
        return self._preview.images(latents)

    def release_memory(self) -> None:
        """Release memory that only serves speed: captured CUDA graphs, which are captured again on use."""
        self._networks.graphs.release()

    def clear_prompt_cache(self) -> None:
        """Drop cached prompt encodings, for measurements: cached prompts make images cheaper."""
        self._text.clear_cache()

    def resolve_defaults(self, request: GenerateRequest, inputs: Inputs | None = None) -> GenerateRequest:
        """Fill in the model's defaults, and refuse what the model cannot do."""
        return resolve_defaults(self.model, request, inputs or Inputs())

    @property
    def most_at_once(self) -> int:
        """Images in a batch without an explicit batch size, if memory allows."""
        return self._networks.most_at_once

    def plan_memory(self, request: GenerateRequest, batch_size: int | None = None) -> MemoryPlan:
        """Plan how a resolved request fits into memory."""
        if batch_size is not None and batch_size < 1:
            rule = f"{batch_size} is out of range; it must be at least 1"
            raise RequestError([Problem("batch_size", rule, batch_size)])
        assert request.width
        assert request.height
        vae_bytes = next(self.model.vae.parameters()).element_size()
        free, where = free_memory(self.model.device)
        demand = MemoryDemand(
            width=request.width,
            height=request.height,
            count=request.count,
            guided=request.cfg != 1,
            batch_size=batch_size,
            encodes=request.image is not None,
            tile_vae=request.tile_vae,
            most_at_once=self._networks.most_at_once,
            prompt_windows=self.num_windows(request),
        )
        budget = MemoryBudget(free, where, self.model.dtype.itemsize, vae_bytes)
        extras = self._networks.extras
        if self._weights_resident:
            # Tensors derived from weights exist by now, so the free bytes do not include them.
            extras = replace(extras, resident_bytes=0)
        plan = plan_memory(self.model.architecture, budget, demand, extras)
        if plan.tiled and request.tile_vae is None:
            _log.info("VAE tiling: a whole decode of %d×%d would not fit", request.width, request.height)
        return plan

    def begin(
        self,
        request: GenerateRequest,
        inputs: Inputs,
        seeds: Sequence[int],
        text: EncodedText | None = None,
    ) -> SamplingRun:
        """Start a batch of a resolved request: text encoded, noise drawn, nothing sampled yet.

        `text` holds its prompts if they were encoded in slices. They are encoded again if files that they
        depend on have changed since.
        """
        assert request.width
        assert request.height
        assert request.strength
        self._refresh_adapters()
        self._resources.use_vae(request.vae)
        self.use_loras(request.loras)
        sigmas = self.sigmas(request)
        factor = self.model.architecture.vae_factor
        shape = (self.model.architecture.latent_channels, request.height // factor, request.width // factor)
        stream = NoiseStream(seeds, shape, self.model.device)
        noise = stream.initial()
        fitted = inputs.fitted(request.width, request.height)
        init = init_latents(self.model, fitted, noise, tiled=bool(request.tile_vae))
        x = start_of_run(request.schedule, request.sampler, noise, sigmas[0])
        if request.strength < 1:
            x = add_scaled_noise(init.clean, noise, sigmas[0])
        options: dict[str, Any] = {} if request.eta is None else {"eta": request.eta}
        options |= options_of_run(request.schedule, request.sampler)
        return SamplingRun(
            begin(request.sampler, x, sigmas, stream.next, **options),
            self._guidance(request, text),
            len(sigmas) - 1,
            keep=init.keep,
            extra_channels=init.extra_channels,
            loras=request.loras,
        )

    def step(self, runs: Sequence[SamplingRun]) -> list[SamplingRun]:
        """Run one UNet evaluation for all runs; return those that completed a step.

        The runs must share a latent shape and LoRAs.
        """
        estimates = self.evaluate(runs)
        return [run for run, estimate in zip(runs, estimates, strict=True) if run.send(estimate)]

    def evaluate(self, runs: Sequence[SamplingRun], *, least_rows: int = 0) -> list[Tensor]:
        """The first half of `step`: the estimate to send to each run. Does not change the runs.

        The batch is padded to `least_rows` rows, so that few shapes are evaluated.
        """
        if any(run.loras != runs[0].loras for run in runs):
            raise ValueError("runs with different LoRAs cannot share an evaluation; step them separately")
        self.use_loras(runs[0].loras)
        return self._denoiser.denoise([run.query() for run in runs], least_rows=least_rows)

    def finish(self, run: SamplingRun, request: GenerateRequest, inputs: Inputs) -> list[Image.Image]:
        """Decode a run that is done."""
        # Launch all decodes before reading the first, which waits for the GPU.
        decoded = list(self.decode(run, request))
        return [to_generated(image, inputs) for image in decoded]

    def decode(self, run: SamplingRun, request: GenerateRequest) -> Iterator[DecodedImage]:
        """The first half of `finish`: the inputs of `to_generated`, one image at a time."""
        assert run.done
        assert run.latents is not None
        # Another request may have begun since, with another VAE.
        self._resources.use_vae(request.vae)
        vae = Vae(self.model, self._networks.decode)
        for latent in run.latents:
            yield to_uint8(vae.decode(latent[None], tiled=bool(request.tile_vae))[0])
        self._weights_resident = True

    def _steps(self, run: SamplingRun, cancel: CancelToken) -> Iterator[None]:
        """Run all steps; yields once per completed step, however many evaluations the sampler needed."""
        while not run.done:
            cancel.check()
            if self.step([run]):
                yield

    def _step_event(self, run: SamplingRun, batch: int, num_batches: int) -> Step:
        assert run.latents is not None
        return Step(run.steps_done, run.total_steps, batch, num_batches, run.latents, self._preview)

    def use_loras(self, loras: Sequence[LoraUse]) -> None:
        """Make exactly these LoRAs active for the next encodings and evaluations."""
        if self._resources.use_loras(loras):
            self._text.clear_cache()
            self._networks.unet.invalidate()

    def _refresh_adapters(self) -> None:
        """Reload changed files. Call it only at the start of a run: all its steps must use the same LoRA."""
        if words := self._resources.refresh():
            self._text.clear_learned_words(words)

    def sigmas(self, request: GenerateRequest) -> tuple[float, ...]:
        """The noise levels of a resolved request."""
        assert request.strength
        try:
            return sigmas_of_run(
                request.schedule,
                self.schedule,
                request.steps,
                sampler=request.sampler,
                denoise=request.strength,
                family=self.model.architecture.family,
            )
        except ValueError as error:
            raise RequestError([Problem("steps", str(error), request.steps)]) from None

    def _guidance(self, request: GenerateRequest, text: EncodedText | None = None) -> Guidance:
        if text is None or text.rewritten != self._resources.rewritten:
            positive = self._text.encode(request.prompt, request.clip_skip)
            negative = self._negative(request, positive)
            if negative is None and request.cfg != 1:
                negative = self._text.encode(request.negative_prompt or "", request.clip_skip)
        else:
            positive, negative = text.positive, text.negative
        time_ids, negative_time_ids = (self._time_ids(request, score) for score in AESTHETIC_SCORES)
        return Guidance(positive, negative, request.cfg, time_ids, negative_time_ids)

    def _conditionings(
        self, request: GenerateRequest
    ) -> Generator[None, None, tuple[Conditioning, Conditioning | None]]:
        positive = yield from self._text.encode_in_slices(request.prompt, request.clip_skip)
        negative = self._negative(request, positive)
        if negative is None and request.cfg != 1:
            yield
            negative = yield from self._text.encode_in_slices(
                request.negative_prompt or "", request.clip_skip
            )
        return positive, negative

    def _negative(self, request: GenerateRequest, positive: Conditioning) -> Conditioning | None:
        """Zeros as the negative prompt, for models trained so; None if it must be encoded."""
        zeros = self.model.architecture.force_zeros_for_empty_prompt
        if request.cfg != 1 and request.negative_prompt is None and zeros:
            return self._text.nothing(positive)
        return None

    def _time_ids(self, request: GenerateRequest, score: float) -> Tensor | None:
        if self.model.architecture.family != "sdxl":
            return None
        size = (request.height, request.width)
        micro = request.micro
        numbers: list[Any] = [*(micro.original_size or size), *micro.crop_top_left]
        numbers += [score] if self.model.architecture.reads_aesthetic_score else micro.target_size or size
        return self._sizes_row(*numbers)


def _row_of(device: torch.device, *numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float32, device=device)


def to_generated(decoded: DecodedImage, inputs: Inputs) -> Image.Image:
    """The second half of `finish`: needs no model and no torch operation, so any thread may call it."""
    image = to_pil(decoded)
    fitted = inputs.fitted(image.width, image.height)
    if fitted.image is None or fitted.mask is None:
        return image
    # Pixels outside the mask stay exact: the VAE would change them a little.
    return Image.composite(image, fitted.image, fitted.mask)


@contextmanager
def _explain_out_of_memory(request: GenerateRequest, device: torch.device) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        torch.cuda.empty_cache()
        on_gpu = device.type == "cuda" or "CUDA" in str(error)
        memory, user = ("GPU memory", "the GPU") if on_gpu else ("main memory", "it")
        raise DoesNotFitError(
            f"{request.width}×{request.height} ran out of {memory} although it was expected to fit: "
            f"another program may be using {user}. Lower --batch-size or the size, or use --tile-vae"
        ) from error
