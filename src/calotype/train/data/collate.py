"""Turn stored samples into training batches: decode, crop, validate and stack."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calotype.spec.recipe_sections import DataConfig
from calotype.train.data.bad_samples import CorruptSampleError
from calotype.train.data.batch_sampler import SampleRef
from calotype.train.data.hashing import mixed
from calotype.train.data.image_transforms import ImageError, Size, crop_and_resize, is_mirrored, stack_images
from calotype.train.data.requirements import DataRequirements
from calotype.train.data.types import Batch, Sample

_CAPTION = 1
"""Separates the choice of a caption from crop and flip, which use the same random number."""


@dataclass(frozen=True)
class PreparedSample:
    """One row of a batch."""

    sample: Sample
    position: int
    pixels: Tensor | None
    """(3, height, width) bytes."""
    size: tuple[int, ...]
    visit: tuple[int, bool] | None = None
    """The row of a cached image, and whether it is mirrored this time."""


@dataclass(frozen=True)
class Collator:
    """Prepares samples as the recipe's data section and the model require."""

    part: DataConfig
    needs: DataRequirements

    def prepare(self, sample: Sample, sample_ref: SampleRef) -> PreparedSample:
        """The sample ready to be stacked; raises CorruptSampleError if it cannot be used."""
        sample = self._choose_caption(sample, sample_ref)
        _check_text(sample)
        if sample.latents is not None:
            mismatch = shape_mismatch(sample, self.needs, sample_ref.target)
            if mismatch is not None:
                raise CorruptSampleError(sample.key, mismatch)
            _check_finite(sample)
            height, width = sample_ref.target
            return PreparedSample(
                sample, sample_ref.position, None, sample.size or (height, width, 0, 0, height, width)
            )
        if sample.kept is not None:
            visit = (sample.kept.row, self.part.random_flip and is_mirrored(sample_ref.draw))
            return PreparedSample(sample, sample_ref.position, None, sample.kept.size, visit)
        if sample.picture is None:
            raise CorruptSampleError(sample.key, "has neither a picture nor latents")
        try:
            pixels, size = crop_and_resize(
                sample.picture,
                sample_ref.target,
                random_crop=self.part.crop == "random",
                random_flip=self.part.random_flip,
                draw=sample_ref.draw,
            )
        except ImageError as error:
            raise CorruptSampleError(sample.key, str(error)) from None
        return PreparedSample(sample, sample_ref.position, pixels, size)

    def _choose_caption(self, sample: Sample, sample_ref: SampleRef) -> Sample:
        # A stored embedding belongs to one caption, whichever other captions there are.
        if sample.captions and sample.context is None:
            chosen = mixed(sample_ref.draw, _CAPTION) % len(sample.captions)
            return replace(sample, caption=sample.captions[chosen])
        if sample.caption or sample.context is not None:
            return replace(sample, caption=sample.caption or "")
        if self.part.default_caption is not None:
            return replace(sample, caption=self.part.default_caption)
        raise CorruptSampleError(
            sample.key, "has no caption" if sample.caption is None else "its caption is empty"
        )


def shape_mismatch(sample: Sample, needs: DataRequirements, target: Size) -> str | None:
    """How a sample's tensors differ from the model's shapes; None if they do not."""
    height, width = (side // needs.vae_factor for side in target)
    wanted: dict[str, tuple[int, ...]] = {
        "latents": (needs.latent_channels, height, width),
        "context": needs.context_shape,
    }
    if needs.pooled_width is not None:
        wanted["pooled"] = (needs.pooled_width,)
        if sample.context is not None and sample.pooled is None:
            return "it has no pooled text, which the model needs"
    for name, shape in wanted.items():
        tensor: Tensor | None = getattr(sample, name)
        if tensor is not None and tuple(tensor.shape) != shape:
            return f"its {name} are {_times(tensor.shape)}, the model needs {_times(shape)}"
    return None


def _check_text(sample: Sample) -> None:
    try:
        (sample.caption or "").encode()
    except UnicodeEncodeError:
        # JSON can encode half of a surrogate pair, which no tokenizer accepts.
        raise CorruptSampleError(sample.key, "its caption is not valid Unicode") from None


def _check_finite(sample: Sample) -> None:
    for name in ("latents", "context", "pooled"):
        tensor: Tensor | None = getattr(sample, name)
        if tensor is not None and not (tensor.is_floating_point() and bool(tensor.isfinite().all())):
            raise CorruptSampleError(sample.key, f"its {name} hold a value that is not a finite number")


def stack_samples(rows: Sequence[PreparedSample]) -> Batch:
    """Stack rows into a batch. Tensors that some rows lack are dropped, since a batch cannot have gaps."""

    def column(name: str) -> Tensor | None:
        tensors = [getattr(row.sample, name) for row in rows]
        return torch.stack(tensors) if all(tensor is not None for tensor in tensors) else None

    pixels = [row.pixels for row in rows if row.pixels is not None]
    return Batch(
        captions=tuple(row.sample.caption or "" for row in rows),
        keys=tuple(row.sample.key for row in rows),
        positions=tuple(row.position for row in rows),
        pixel_bytes=stack_images(pixels) if pixels else None,
        latents=column("latents"),
        context=column("context"),
        pooled=column("pooled"),
        sizes=torch.tensor([row.size for row in rows]),
    )


def _times(shape: Sequence[int]) -> str:
    return "×".join(str(side) for side in shape)
