"""The engine: a model and a preset that turn requests into pictures.

`generate` is `begin`, `advance` until done, `finish`. A server calls the three itself, with many runs at once: one
`advance` is one UNet evaluation for all of them. Knows nothing of files of pictures, queues or command lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from calotype.core.errors import DoesNotFitError, Problem, RequestError
from calotype.core.paths import models_dir
from calotype.core.progress import CancelToken
from calotype.engine.autoencoder import Autoencoder, to_pixels
from calotype.engine.denoiser import Denoiser, Guidance
from calotype.engine.device import free_memory
from calotype.engine.inputs import Inputs, describe, reopen
from calotype.engine.memory import Budget, Plan, plan
from calotype.engine.presets import apply_preset
from calotype.engine.preview import Preview
from calotype.engine.record import records
from calotype.engine.resources import Resources
from calotype.engine.run import Keep, Run
from calotype.engine.text import Conditioning, TextConditioner
from calotype.models.model import Model
from calotype.sampling import NoiseStream, begin, sigmas_for, training_schedule
from calotype.sampling.noise import from_noise_alone, noised
from calotype.sampling.sampler import sampler_options
from calotype.spec.record import PictureRecord
from calotype.spec.request import GenerateRequest

INPAINTING_CHANNELS = 9
"""Input channels of UNets that read the mask (1) and the masked picture (4) beside the latent (4)."""


@dataclass(frozen=True)
class Step:
    """News of a completed step."""

    done: int
    total: int
    latents: Tensor
    _preview: Preview

    def preview(self) -> list[Image.Image]:
        """A small glimpse of each picture of the batch."""
        return self._preview.images(self.latents)


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class Generated:
    """Pictures and, for each, the record that makes it again."""

    images: list[Image.Image] = field(default_factory=list)
    records: list[PictureRecord] = field(default_factory=list)


class Engine:
    """Runs requests on one model."""

    def __init__(self, model: Model, *, preset: str = "baseline", models_folder: Path | None = None) -> None:
        apply_preset(model, preset)
        self.model = model
        self.preset = preset
        config = model.architecture.scheduler
        self.schedule = training_schedule(
            config.get("beta_schedule", "scaled_linear"),
            float(config.get("beta_start", 0.00085)),
            float(config.get("beta_end", 0.012)),
            int(config.get("num_train_timesteps", 1000)),
            bool(config.get("rescale_betas_zero_snr", False)),
        )
        self._resources = Resources(model, models_folder or models_dir())
        self._text = TextConditioner(model, self._resources.embedding)
        self._denoiser = Denoiser(model, self.schedule)
        self._preview = Preview(model)

    def generate(
        self,
        request: GenerateRequest | str,
        *,
        image: Image.Image | Path | None = None,
        mask: Image.Image | Path | None = None,
        batch_size: int | None = None,
        on_step: OnStep | None = None,
        cancel: CancelToken | None = None,
        **knobs: Any,
    ) -> Generated:
        """Pictures for a request, or for a prompt with the knobs of GenerateRequest by name."""
        request, inputs = _with_inputs(request, image, mask, knobs)
        request = self.resolve(request, inputs)
        chosen = self.plan(request, batch_size)
        request = request.with_changes(tile_vae=chosen.tiled_decode)
        seeds, pictures = request.seeds(), Generated()
        with self._out_of_memory_explained(request):
            for start in range(0, request.count, chosen.batch_size):
                run = self.begin(request, inputs, seeds[start : start + chosen.batch_size])
                self._to_the_end(run, on_step, cancel or CancelToken())
                pictures.images.extend(self.finish(run, request, inputs))
        pictures.records.extend(records(self.model, self.preset, request))
        return pictures

    def resolve(self, request: GenerateRequest, inputs: Inputs | None = None) -> GenerateRequest:
        """Fill in what the model decides, and refuse what it cannot do."""
        native = self.model.architecture.native_size
        width, height = (inputs.size() if inputs else None) or (native, native)
        problems = []
        if request.eta is not None and "eta" not in sampler_options(request.sampler):
            problems.append(Problem("eta", f"sampler {request.sampler!r} adds no noise and has no eta", request.eta))
        deepest = min(int(config["num_hidden_layers"]) for config in self.model.architecture.text_encoders) - 1
        if request.clip_skip > deepest:
            problems.append(Problem("clip_skip", f"{request.clip_skip} is more than this model's {deepest}", deepest))
        if problems:
            raise RequestError(problems)
        return request.with_changes(width=request.width or width, height=request.height or height)

    def plan(self, request: GenerateRequest, batch_size: int | None = None) -> Plan:
        """How a resolved request will fit into memory."""
        assert request.width and request.height
        vae_bytes = next(self.model.vae.parameters()).element_size()
        free, where = free_memory(self.model.device)
        chosen = plan(
            self.model.architecture,
            Budget(free, where, self.model.dtype.itemsize, vae_bytes),
            width=request.width,
            height=request.height,
            count=request.count,
            guided=request.cfg != 1.0,
            batch_size=batch_size,
        )
        tiled = chosen.tiled_decode if request.tile_vae is None else request.tile_vae
        return Plan(chosen.batch_size, tiled, chosen.peak_bytes)

    def begin(self, request: GenerateRequest, inputs: Inputs, seeds: Sequence[int]) -> Run:
        """Start a batch of a resolved request: text encoded, noise drawn, nothing sampled yet."""
        assert request.width and request.height
        self._resources.use_vae(request.vae)
        if self._resources.use_loras(request.loras):
            self._text.forget()
        factor = self.model.architecture.vae_factor
        shape = (self.model.architecture.latent_channels, request.height // factor, request.width // factor)
        stream = NoiseStream(seeds, shape, self.model.device)
        try:
            sigmas = sigmas_for(
                request.schedule, self.schedule, request.steps, sampler=request.sampler, denoise=request.strength
            )
        except ValueError as error:
            raise RequestError([Problem("steps", str(error), request.steps)]) from None
        noise = stream.initial()
        clean, keep, extra = self._start(inputs.fitted(request.width, request.height), noise)
        x = from_noise_alone(noise, sigmas[0]) if request.strength == 1 else noised(clean, noise, sigmas[0])
        options = {} if request.eta is None else {"eta": request.eta}
        sampling = begin(request.sampler, x, sigmas, stream.next, **options)
        return Run(sampling, self._guidance(request), len(sigmas) - 1, keep=keep, extra_channels=extra)

    def advance(self, runs: Sequence[Run]) -> list[Run]:
        """One UNet evaluation for all runs; returns those that completed a step. All share a latent shape."""
        answers = self._denoiser.answer([run.question() for run in runs])
        return [run for run, answer in zip(runs, answers, strict=True) if run.receive(answer)]

    def finish(self, run: Run, request: GenerateRequest, inputs: Inputs) -> list[Image.Image]:
        """Decode a run that is done."""
        assert run.done
        assert run.latents is not None
        images = Autoencoder(self.model).decode(run.latents, tiled=bool(request.tile_vae))
        if inputs.mask is None:
            return images
        fitted = inputs.fitted(images[0].width, images[0].height)
        assert fitted.image is not None
        assert fitted.mask is not None
        # What is kept is kept to the pixel: the autoencoder would change it a little.
        return [Image.composite(image, fitted.image, fitted.mask) for image in images]

    def _to_the_end(self, run: Run, on_step: OnStep | None, cancel: CancelToken) -> None:
        while not run.done:
            cancel.check()
            completed = self.advance([run])
            if completed and on_step:
                assert run.latents is not None
                on_step(Step(run.steps_done, run.total_steps, run.latents, self._preview))

    def _guidance(self, request: GenerateRequest) -> Guidance:
        positive = self._text.encode(request.prompt, request.clip_skip)
        negative: Conditioning | None = None
        if request.cfg != 1.0:
            zeros = request.negative_prompt is None and self.model.architecture.force_zeros_for_empty_prompt
            negative = positive.zeros() if zeros else self._text.encode(request.negative_prompt or "", request.clip_skip)
        return Guidance(positive, negative, request.cfg, self._time_ids(request))

    def _time_ids(self, request: GenerateRequest) -> Tensor | None:
        if self.model.architecture.family != "sdxl":
            return None
        size = (request.height, request.width)
        micro = request.micro
        numbers = [*(micro.original_size or size), *micro.crop_top_left, *(micro.target_size or size)]
        return torch.tensor([numbers], dtype=torch.float32, device=self.model.device)

    def _start(self, inputs: Inputs, noise: Tensor) -> tuple[Tensor, Keep | None, Tensor | None]:
        """The clean latents to start from, what to keep of them, and what an inpainting UNet reads beside them."""
        reads_mask = self.model.unet.config.in_channels == INPAINTING_CHANNELS
        clean = torch.zeros_like(noise)
        if inputs.image is None and not reads_mask:
            return clean, None, None
        autoencoder = Autoencoder(self.model)
        height, width = (side * self.model.architecture.vae_factor for side in noise.shape[-2:])
        image = inputs.image or Image.new("RGB", (width, height), (128, 128, 128))
        pixels = to_pixels(image)[None].to(noise.device)
        clean = autoencoder.encode(pixels).expand_as(noise)
        mask = inputs.mask or Image.new("L", (width, height), 255)
        paint = (to_pixels(mask)[None, :1].to(noise.device) + 1) / 2
        paint = interpolate(paint, size=noise.shape[-2:], mode="area")
        if not reads_mask:
            return clean, Keep(clean, noise, paint) if inputs.mask else None, None
        paint = paint.round()
        hidden = interpolate(paint, size=(height, width), mode="nearest")
        masked = autoencoder.encode(pixels * (1 - hidden)).expand_as(noise)
        return clean, None, torch.cat([paint.expand(len(noise), -1, -1, -1), masked], dim=1)

    @contextmanager
    def _out_of_memory_explained(self, request: GenerateRequest) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise DoesNotFitError(
                f"{request.width}×{request.height} ran out of GPU memory although it was expected to fit: another "
                f"program may be using the card. Lower --batch-size or the size, or use --tile-vae"
            ) from error


def _with_inputs(
    request: GenerateRequest | str, image: Image.Image | Path | None, mask: Image.Image | Path | None, knobs: dict[str, Any]
) -> tuple[GenerateRequest, Inputs]:
    """The request and its pictures, whether these were given, or named in the request's own record."""
    if isinstance(request, str):
        values: dict[str, Any] = {"prompt": request, **knobs}
    else:
        values = {**request.as_dict(), **knobs}
    found: dict[str, Image.Image] = {}
    for name, given in (("image", image), ("mask", mask)):
        if given is not None:
            found[name], record = describe(given)
            values[name] = record.model_dump(mode="json")
    parsed = GenerateRequest.parse(values)
    for name, described in (("image", parsed.image), ("mask", parsed.mask)):
        if described is not None and name not in found:
            found[name] = reopen(described, name)
    return parsed, Inputs(found.get("image"), found.get("mask"))
