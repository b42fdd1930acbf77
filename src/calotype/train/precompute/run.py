"""Run a recipe's data once through the frozen autoencoder and text encoders and store the results.

Latents are the mean of the autoencoder's distribution, in the UNet's scale. Training on images samples from
that distribution anew each time; a stored sample would repeat in every epoch, so none is stored.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from calotype.core.errors import DoesNotFitError, Problem, RequestError
from calotype.core.progress import Progress, Silent
from calotype.engine.device import choose_dtype
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.builders import load_training_model, requirements_of
from calotype.train.checkpoint import StopSignal, claimed
from calotype.train.data.bad_samples import BadSampleReport, DataError
from calotype.train.data.dataloader import DataLoader, build_single_pass
from calotype.train.data.factory import SYNTHETIC
from calotype.train.data.precomputed.index import Provenance, part_folder
from calotype.train.data.precomputed.writer import PrecomputedWriter
from calotype.train.data.types import Batch, Text
from calotype.train.distributed.process_group import Rank, apply_elastic_world_size, init_process_group
from calotype.train.encode import encode_captions, encode_images
from calotype.train.precompute.compatibility import Origin, refuse_other_parts
from calotype.train.signals import SignalShelter
from calotype.train.start_weights import check_encoders_are_chosen

DEFAULT_SAMPLES_PER_SHARD = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Precomputed:
    """The result of this process."""

    folder: Path
    part: int
    num_parts: int
    num_samples: int
    """Samples of this part that are safely on the disk."""
    finished: bool
    """False after a stop signal; the same command resumes."""
    report: BadSampleReport
    """The samples that could not be read in this run."""


def precompute(
    recipe: Recipe,
    destination: Path,
    *,
    dtype: str = "fp16",
    samples_per_shard: int | None = None,
    device: torch.device | None = None,
    progress: Progress | None = None,
    models: Path | None = None,
) -> Precomputed:
    """Fill `destination`, or resume after its last complete shard.

    A resumed folder ends up with the same bytes as an uninterrupted one if the shard size is a multiple of
    the micro-batch and every sample can be read; otherwise the last bits may differ, since kernels sum in a
    different order for other batch sizes.
    """
    recipe = apply_elastic_world_size(recipe)
    _check(recipe)
    check_encoders_are_chosen(recipe)
    micro = recipe.model.micro_batch_size
    per_shard = samples_per_shard or -(-DEFAULT_SAMPLES_PER_SHARD // micro) * micro
    with init_process_group(recipe, device) as process, SignalShelter() as stop:
        refuse_other_parts(destination, process.world_size)
        encoders = _Encoders.load(recipe, process, dtype, progress, models)
        work = _Work(recipe, destination, encoders, process, per_shard)
        with claimed(part_folder(destination, process.rank, process.world_size)), work.open() as dataloader:
            writer = work.writer(dataloader)
            if not writer.finished:
                rank_progress = _start_progress(progress, process, dataloader, writer.next_position)
                _fill(writer, dataloader, encoders, stop, rank_progress)
            return Precomputed(
                destination,
                process.rank,
                process.world_size,
                writer.num_samples,
                writer.finished,
                dataloader.report(),
            )


def _fill(
    writer: PrecomputedWriter,
    dataloader: DataLoader,
    encoders: _Encoders,
    stop: StopSignal,
    progress: Progress,
) -> None:
    for batch in dataloader:
        if stop.requested:
            return
        writer.add(batch, *encoders.encode(batch))
        progress.advance(len(batch))
    writer.finish()


def _start_progress(
    progress: Progress | None, process: Rank, dataloader: DataLoader, next_position: int | None
) -> Progress:
    rank_progress = progress if progress and process.is_first else Silent()
    total = dataloader.facts.num_samples or 0
    begin, end = (total * rank // process.world_size for rank in (process.rank, process.rank + 1))
    rank_progress.start("precompute", end - begin)
    rank_progress.advance(max(begin, next_position or 0) - begin)
    return rank_progress


def _check(recipe: Recipe) -> None:
    problems = []
    if recipe.data.kind == "precomputed":
        rule = "is precomputed already; set data.kind and data.path to the images"
        problems.append(Problem("data.kind", rule, recipe.data.kind))
    if recipe.data.kind in SYNTHETIC:
        rule = "has synthetic samples, so there is nothing to encode; set data.kind and data.path to images"
        problems.append(Problem("data.kind", rule, recipe.data.kind))
    if trained := _encoder_trained(recipe):
        rule = f"trains {trained}, so its outputs cannot be precomputed; train it on the images"
        problems.append(Problem("model.train", rule, recipe.model.train))
    if problems:
        raise RequestError(problems)
    for name, is_random in (
        ("crop=random", recipe.data.crop == "random"),
        ("random_flip", recipe.data.random_flip),
    ):
        if is_random:
            _log.warning("data.%s is decided once per sample and stays the same in every epoch", name)


def _encoder_trained(recipe: Recipe) -> str | None:
    """The part that the recipe trains among those whose outputs would be stored."""
    if recipe.trains_text_encoders:
        return "the text encoders"
    return {"textual_inversion": "what the text encoders read", "vae": "the autoencoder"}.get(
        recipe.model.train
    )


@dataclass(frozen=True)
class _Work:
    """One process's share of the work."""

    recipe: Recipe
    destination: Path
    encoders: _Encoders
    process: Rank
    samples_per_shard: int

    def open(self) -> DataLoader:
        """The remaining samples."""
        return build_single_pass(
            self.recipe.data,
            requirements_of(self.encoders.model, self.recipe),
            rank=self.process.rank,
            world_size=self.process.world_size,
            micro_batch_size=self.recipe.model.micro_batch_size,
            first=self._writer(None).next_position,
        )

    def writer(self, dataloader: DataLoader) -> PrecomputedWriter:
        """The writer of the results; refuses to resume work with other data or settings."""
        data = self.recipe.data
        origin = Origin(
            dataloader.facts.identity,
            str(self.encoders.dtype).removeprefix("torch."),
            self.recipe.model.precision,
            data.buckets,
            data.crop,
            data.random_flip,
            data.default_caption,
        )
        origin.settle(self.destination, self.process.rank, self.process.world_size)
        return self._writer(self.encoders.empty_text())

    def _writer(self, empty_text: Text | None) -> PrecomputedWriter:
        needs = requirements_of(self.encoders.model, self.recipe)
        assert needs.vae_hash
        assert needs.text_hash
        return PrecomputedWriter(
            self.destination,
            Provenance(needs.vae_hash, needs.text_hash, needs.resolution),
            samples_per_shard=self.samples_per_shard,
            part=self.process.rank,
            num_parts=self.process.world_size,
            empty_text=empty_text,
        )


@dataclass(frozen=True)
class _Encoders:
    """The frozen encoders of a model, and the dtype of the stored results."""

    model: Model
    dtype: torch.dtype

    @classmethod
    def load(
        cls, recipe: Recipe, process: Rank, dtype: str, progress: Progress | None, models: Path | None
    ) -> _Encoders:
        stored_dtype = choose_dtype(dtype, process.device)
        rank_progress = progress if progress and process.is_first else Silent()
        model = load_training_model(recipe, process.device, rank_progress, models)
        if model.identity.random and process.is_first:
            _log.warning("model.weights=random: latents and embeddings come from random numbers")
        # The UNet is not used here, and its memory makes room for larger batches.
        nn.Module.to(model.unet, "meta")
        if recipe.model.channels_last:
            model.vae.to(memory_format=torch.channels_last)
        return cls(model, stored_dtype)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Latents, context and pooled text embedding of each sample, on the CPU."""
        on_device = batch.to(self.model.device, non_blocking=True)
        assert on_device.pixels is not None
        try:
            mean = encode_images(self.model, on_device.pixels, torch.zeros((), device=self.model.device))
            text = self._encode_text(batch.captions)
        except torch.OutOfMemoryError as error:
            rule = f"out of memory with {len(batch)} images in a batch; lower model.micro_batch_size"
            raise DoesNotFitError(rule) from error
        latents = mean.to(self.dtype).cpu()
        outputs = (latents, text.context) if text.pooled is None else (latents, text.context, text.pooled)
        for row, key in enumerate(batch.keys):
            if not all(bool(tensor[row].isfinite().all()) for tensor in outputs):
                fix = "use --dtype fp32 or bf16, and model.precision=bf16 or fp32"
                raise DataError(key, f"its latents or text are out of the range of {self.dtype}; {fix}")
        return latents, text.context, text.pooled

    def empty_text(self) -> Text:
        """The embedding of the empty caption, for training with caption dropout."""
        text = self._encode_text([""])
        return Text(text.context[0], None if text.pooled is None else text.pooled[0])

    def _encode_text(self, captions: tuple[str, ...] | list[str]) -> Text:
        context, pooled = encode_captions(self.model, captions)
        return Text(context.to(self.dtype).cpu(), None if pooled is None else pooled.to(self.dtype).cpu())
