"""The engine: a model and a preset that turn requests into pictures.

`generate` is `begin`, `advance` until done, `finish`. A server calls the three itself, with many runs at
once: one `advance` is one UNet evaluation for all of them. Knows nothing of files of pictures, queues or
command lines.
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
"""What SDXL's refiner is told of the wanted picture, and of the unwanted; as its authors do."""
MAX_SIZES = 64
"""Of SDXL's that are remembered."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """News of a completed step of one batch."""

    done: int
    total: int
    batch: int
    """Which batch of the request this is, from 0."""
    num_batches: int
    latents: Tensor
    """The latest estimate of the batch's finished latents."""
    _preview: Preview

    def preview(self) -> list[Image.Image]:
        """A small glimpse of each picture of the batch."""
        return self._preview.images(self.latents)


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A request's prompts as the UNet reads them."""

    positive: Conditioning
    negative: Conditioning | None
    rewritten: int
    """Which state of the model folder's files they were encoded with."""


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class Generated:
    """Pictures and, for each, the record that makes it again."""

    images: list[Image.Image] = field(default_factory=list)
    records: list[PictureRecord] = field(default_factory=list)


class Engine:
    """Runs requests on one model. For one thread at a time: a LoRA changes the model that others use."""

    def __init__(
        self,
        model: Model,
        *,
        preset: str = "baseline",
        models_folder: Path | None = None,
        compiled: Mapping[str, Path] | None = None,
        networks: Networks | None = None,
    ) -> None:
        """`compiled` is what an engine was built with; `networks`, if given, stand in for the preset's."""
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
            aside=self._networks.text_aside,
            run=self._networks.run_text,
        )
        # The same tensor for the same sizes: networks remember by it what they made of it.
        self._sizes_row = lru_cache(MAX_SIZES)(partial(_row_of, model.device))
        self._preview = Preview(model, self._networks.decode)
        self._settled = False

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
        """Pictures for a request, or for a prompt with the knobs of GenerateRequest by name."""
        values = {"prompt": request} if isinstance(request, str) else request.as_dict()
        asked, inputs = load_image_inputs({**values, **knobs}, image, mask)
        resolved = self.resolve_defaults(asked, inputs)
        chosen = self.plan_memory(resolved, batch_size)
        resolved = resolved.with_changes(tile_vae=chosen.tiled)
        seeds, pictures = resolved.seeds(), Generated()
        starts = range(0, resolved.count, chosen.batch_size)
        noted = self.records(resolved)
        with _out_of_memory_explained(resolved, self.model.device):
            for batch, start in enumerate(starts):
                run = self.begin(resolved, inputs, seeds[start : start + chosen.batch_size])
                for _ in self._steps(run, cancel or CancelToken()):
                    if on_step:
                        on_step(self._news(run, batch, len(starts)))
                pictures.images.extend(self.finish(run, resolved, inputs))
        pictures.records.extend(noted)
        return pictures

    def records(self, request: GenerateRequest) -> list[PictureRecord]:
        """What is remembered of each picture of a resolved request."""
        return image_records(self.model, self.preset, request, self._resources.digests(request))

    def preview(self, run: SamplingRun) -> list[Image.Image]:
        """A small glimpse of each picture of a run that has been advanced."""
        assert run.latents is not None
        return self.previews(run.latents)

    def warm_up(self, shapes: Sequence[Shape], progress: Progress | None = None) -> None:
        """Make pictures of each shape for nobody, so that nothing of it is left to compile or to record."""
        watcher = progress or Silent()
        watcher.start("warming up", len(shapes))
        for shape in shapes:
            watcher.describe(f"warming up {shape}")
            self.generate(
                "",
                width=shape.width,
                height=shape.height,
                count=shape.count,
                batch_size=shape.count,
                sampler="euler",
                steps=self._networks.settled_after,
            )
            watcher.advance()

    def warm_up_batch(self, request: GenerateRequest, count: int) -> None:
        """So many pictures of a resolved request together, for nobody, until nothing is left to record."""
        together = request.with_changes(count=count, steps=self._networks.settled_after)
        run = self.begin(together, Inputs(), together.seeds())
        for _ in range(self._networks.settled_after):
            self.step([run])

    def finish_compiling(self) -> int | None:
        """Wait for whatever is compiled behind its back; how much has been since the start, None if nothing
        ever is."""
        runs = self._networks.runs
        if not isinstance(runs, CompileManager) or not runs.compiles:
            return None
        runs.finish()
        return runs.changes

    def encode(self, prompt: str | tuple[str, ...], clip_skip: int = 0) -> Conditioning:
        """A prompt as the UNet reads it, or one prompt for each text encoder, with the LoRAs in use."""
        self._refresh_adapters()
        return self._text.encode(prompt, clip_skip)

    def num_windows(self, request: GenerateRequest) -> int:
        """Windows of tokens of a request's longer prompt."""
        return max(self._text.num_windows(each) for each in (request.prompt, request.negative_prompt or ""))

    def encode_in_slices(self, request: GenerateRequest) -> Generator[None, None, EncodedText]:
        """A resolved request's prompts for `begin`; other runs may be evaluated wherever it yields."""
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

    def denoise(self, questions: Sequence[DenoiseInput], network: UNetRunner | None = None) -> list[Tensor]:
        """Clean estimates for questions of one shape, with the LoRAs in use; one UNet evaluation.

        `network`, if given, is asked instead of the preset's.
        """
        denoiser = self._denoiser if network is None else Denoiser(self.model, self.schedule, network)
        return denoiser.denoise(questions)

    def vae(self) -> RawVae:
        """The model's own, run as the preset says, in its own scale."""
        self._resources.use_vae(None)
        return RawVae(self.model.vae, self._networks.decode)

    def previews(self, latents: Tensor) -> list[Image.Image]:
        """A small picture of each latent."""
        return self._preview.images(latents)

    def release_memory(self) -> None:
        """Let memory go that is kept only to be faster: what was recorded, which is recorded again."""
        self._networks.graphs.release()

    def clear_prompt_cache(self) -> None:
        """Encode every prompt anew, for measurements: a prompt's second picture costs less than its first."""
        self._text.clear_cache()

    def resolve_defaults(self, request: GenerateRequest, inputs: Inputs | None = None) -> GenerateRequest:
        """Fill in what the model decides, and refuse what it cannot do."""
        return resolve_defaults(self.model, request, inputs or Inputs())

    @property
    def most_at_once(self) -> int:
        """Pictures in a batch nobody chose the size of, if there is memory for them."""
        return self._networks.most_at_once

    def plan_memory(self, request: GenerateRequest, batch_size: int | None = None) -> MemoryPlan:
        """How a resolved request will fit into memory."""
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
        if self._settled:
            # What is made of weights is there, and not among the free bytes any more.
            extras = replace(extras, resident_bytes=0)
        chosen = plan_memory(self.model.architecture, budget, demand, extras)
        if chosen.tiled and request.tile_vae is None:
            _log.info("tiles: a whole decode of %d×%d would not fit", request.width, request.height)
        return chosen

    def begin(
        self,
        request: GenerateRequest,
        inputs: Inputs,
        seeds: Sequence[int],
        text: EncodedText | None = None,
    ) -> SamplingRun:
        """Start a batch of a resolved request: text encoded, noise drawn, nothing sampled yet.

        `text`: its prompts, where they were encoded in slices. They are encoded again if files that they
        depend on have been written anew since.
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
        start = init_latents(self.model, fitted, noise, tiled=bool(request.tile_vae))
        x = start_of_run(request.schedule, request.sampler, noise, sigmas[0])
        if request.strength < 1:
            x = add_scaled_noise(start.clean, noise, sigmas[0])
        options: dict[str, Any] = {} if request.eta is None else {"eta": request.eta}
        options |= options_of_run(request.schedule, request.sampler)
        return SamplingRun(
            begin(request.sampler, x, sigmas, stream.next, **options),
            self._guidance(request, text),
            len(sigmas) - 1,
            keep=start.keep,
            extra_channels=start.extra_channels,
            loras=request.loras,
        )

    def step(self, runs: Sequence[SamplingRun]) -> list[SamplingRun]:
        """One UNet evaluation for all runs; returns those that completed a step.

        They share a latent shape and LoRAs.
        """
        answers = self.evaluate(runs)
        return [run for run, answer in zip(runs, answers, strict=True) if run.send(answer)]

    def evaluate(self, runs: Sequence[SamplingRun], *, least_rows: int = 0) -> list[Tensor]:
        """The first half of `advance`: what each run is to receive. Leaves the runs as they are.

        Rows up to `least_rows` are filled with ones that nobody reads, so that few shapes are evaluated.
        """
        if any(run.loras != runs[0].loras for run in runs):
            raise ValueError("runs with different LoRAs cannot share an evaluation; advance them apart")
        self.use_loras(runs[0].loras)
        return self._denoiser.denoise([run.query() for run in runs], least_rows=least_rows)

    def finish(self, run: SamplingRun, request: GenerateRequest, inputs: Inputs) -> list[Image.Image]:
        """Decode a run that is done."""
        # All are asked for before the first is looked at, which waits for it: a GPU goes on meanwhile.
        decoded = list(self.decode(run, request))
        return [to_generated(what, inputs) for what in decoded]

    def decode(self, run: SamplingRun, request: GenerateRequest) -> Iterator[DecodedImage]:
        """The first half of `finish`: what `to_generated` makes pictures of, one at a time."""
        assert run.done
        assert run.latents is not None
        # Another request may have begun since, with another VAE.
        self._resources.use_vae(request.vae)
        autoencoder = Vae(self.model, self._networks.decode)
        for latent in run.latents:
            yield to_uint8(autoencoder.decode(latent[None], tiled=bool(request.tile_vae))[0])
        self._settled = True

    def _steps(self, run: SamplingRun, cancel: CancelToken) -> Iterator[None]:
        """Advance a run to its end; one item per completed step, whatever the sampler needed for it."""
        while not run.done:
            cancel.check()
            if self.step([run]):
                yield

    def _news(self, run: SamplingRun, batch: int, num_batches: int) -> Step:
        assert run.latents is not None
        return Step(run.steps_done, run.total_steps, batch, num_batches, run.latents, self._preview)

    def use_loras(self, loras: Sequence[LoraUse]) -> None:
        """Make exactly these active for what is encoded and answered next."""
        if self._resources.use_loras(loras):
            self._text.clear_cache()
            self._networks.unet.invalidate()

    def _refresh_adapters(self) -> None:
        """At the start of a picture and not between its steps: it is to be made with one LoRA."""
        if words := self._resources.refresh():
            self._text.clear_learned_words(words)

    def sigmas(self, request: GenerateRequest) -> tuple[float, ...]:
        """The noise levels that a resolved request visits."""
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
        wanted, unwanted = (self._time_ids(request, score) for score in AESTHETIC_SCORES)
        return Guidance(positive, negative, request.cfg, wanted, unwanted)

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
        """What stands for the negative prompt where none is encoded."""
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


def to_generated(what: DecodedImage, inputs: Inputs) -> Image.Image:
    """The second half of `finish`, which needs no model and computes nothing with torch: for any thread."""
    image = to_pil(what)
    fitted = inputs.fitted(image.width, image.height)
    if fitted.image is None or fitted.mask is None:
        return image
    # What is kept is kept to the pixel: the autoencoder would change it a little.
    return Image.composite(image, fitted.image, fitted.mask)


@contextmanager
def _out_of_memory_explained(request: GenerateRequest, device: torch.device) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        torch.cuda.empty_cache()
        on_gpu = device.type == "cuda" or "CUDA" in str(error)
        full, whose = ("GPU memory", "the card") if on_gpu else ("main memory", "it")
        raise DoesNotFitError(
            f"{request.width}×{request.height} ran out of {full} although it was expected to fit: "
            f"another program may be using {whose}. Lower --batch-size or the size, or use --tile-vae"
        ) from error
