"""What one training step gets: tensors and captions. Knows nothing of where they come from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from PIL import Image
from torch import Tensor

from calotype.train.data.bad_samples import BadSample

_TENSORS = ("pixel_bytes", "pixels", "moments", "latents", "context", "pooled", "sizes")


@dataclass(frozen=True)
class Text:
    """A caption as the text encoders put it."""

    context: Tensor
    pooled: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """One micro-batch; all of its pictures have one size.

    Pictures come as `pixel_bytes`, a quarter of the way between processes and to the GPU, and are `pixels`
    once the batch is where it is used; or they come as `moments` or `latents`.
    """

    captions: tuple[str, ...]
    keys: tuple[str, ...]
    """Names of the samples, for messages."""
    positions: tuple[int, ...]
    """Where each sample stands in its order; with buckets, in the order of its bucket."""
    pixel_bytes: Tensor | None = None
    """(n, 3, height, width), uint8."""
    pixels: Tensor | None = None
    """(n, 3, height, width), fp32 from -1 to 1."""
    moments: Tensor | None = None
    """(n, 2, channels, height, width): mean and deviation of the latents, in the autoencoder's scale."""
    latents: Tensor | None = None
    """(n, channels, height, width) in the UNet's scale, in the numbers they were stored in."""
    context: Tensor | None = None
    """(n, tokens, width); None when captions are still to be encoded."""
    pooled: Tensor | None = None
    """(n, width), for the models that want it."""
    sizes: Tensor | None = None
    """(n, 6) int64: original height and width, crop top and left, target height and width."""

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """The same batch with its tensors on `device`, and its bytes as numbers."""
        there = self._with_each(lambda tensor: tensor.to(device, non_blocking=non_blocking))
        if there.pixel_bytes is None:
            return there
        return replace(there, pixel_bytes=None, pixels=as_numbers(there.pixel_bytes))

    def pin(self) -> Self:
        """The same batch in page-locked memory, from where a copy to the GPU does not hold up the CPU."""
        return self._with_each(lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor)

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> Self:
        present = {name: getattr(self, name) for name in _TENSORS if getattr(self, name) is not None}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in present.items()}
        return replace(self, **changed)


def as_numbers(pixel_bytes: Tensor) -> Tensor:
    """Bytes as fp32 from -1 to 1, the same bits on every device."""
    # A GPU multiplies by the reciprocal of a plain number, which rounds differently; by a tensor it divides.
    half = torch.full((), 127.5, device=pixel_bytes.device)
    return pixel_bytes.to(torch.float32).div_(half).sub_(1)


@dataclass(frozen=True)
class CachedImage:
    """A picture that was decoded before and is kept elsewhere."""

    row: int
    size: tuple[int, ...]
    """Six numbers as in `Batch.sizes`."""


@dataclass(frozen=True)
class Sample:
    """A picture or its latents, with a caption or its embedding."""

    key: str
    """The sample's name, which is the same in every run."""
    picture: bytes | Image.Image | None = None
    """As it lies in its file, or decoded where a format's own library does that."""
    kept: CachedImage | None = None
    """In place of the picture."""
    caption: str | None = None
    captions: tuple[str, ...] = ()
    """Several ways to say it, where there are: each visit takes one of these."""
    latents: Tensor | None = None
    context: Tensor | None = None
    pooled: Tensor | None = None
    size: tuple[int, ...] | None = None
    """Six numbers as in `Batch.sizes`, where they are known beforehand."""


class Source(Protocol):
    """Samples by number. Reading the same number twice gives the same sample, in any process.

    Must survive being pickled or forked into a worker.
    """

    @property
    def identity(self) -> str:
        """Changes when the list of samples does: a position in the order then means something else."""
        ...

    @property
    def damage(self) -> Sequence[BadSample]:
        """What is known to be missing before anything is read."""
        ...

    @property
    def empty_text(self) -> Text | None:
        """The empty caption's embedding, if the source keeps embeddings."""
        ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """The sample; raises CorruptSampleError if it cannot be had."""
        ...

    def size_of(self, index: int) -> tuple[int, int] | None:
        """Height and width of the picture without decoding it; None if that cannot be told."""
        ...

    def close(self) -> None:
        """Let go of open files."""
        ...
