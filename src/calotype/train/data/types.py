"""The data types of a training step's input: batches, samples and the source interface."""

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
    """A caption as embedded by the text encoders."""

    context: Tensor
    pooled: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """One micro-batch; all its images have one size.

    Images arrive as `pixel_bytes`, a quarter of the size in transfers between processes and to the GPU, and
    become `pixels` on the target device; or they arrive as `moments` or `latents`.
    """

    captions: tuple[str, ...]
    keys: tuple[str, ...]
    """Names of the samples, for messages."""
    positions: tuple[int, ...]
    """The position of each sample in its order; with buckets, in the order of its bucket."""
    pixel_bytes: Tensor | None = None
    """(n, 3, height, width), uint8."""
    pixels: Tensor | None = None
    """(n, 3, height, width), fp32 from -1 to 1."""
    moments: Tensor | None = None
    """(n, 2, channels, height, width): mean and standard deviation of latents, in the autoencoder's scale."""
    latents: Tensor | None = None
    """(n, channels, height, width) in the UNet's scale, in the dtype they were stored in."""
    context: Tensor | None = None
    """(n, tokens, width); None if captions are still to be encoded."""
    pooled: Tensor | None = None
    """(n, width), for models that use it."""
    sizes: Tensor | None = None
    """(n, 6) int64: original height and width, crop top and left, target height and width."""

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """The batch with its tensors on `device`, and pixel bytes converted to fp32."""
        moved = self._with_each(lambda tensor: tensor.to(device, non_blocking=non_blocking))
        if moved.pixel_bytes is None:
            return moved
        return replace(moved, pixel_bytes=None, pixels=as_numbers(moved.pixel_bytes))

    def pin(self) -> Self:
        """The batch in pinned memory, from which a copy to the GPU does not block the CPU."""
        return self._with_each(lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor)

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> Self:
        present = {name: getattr(self, name) for name in _TENSORS if getattr(self, name) is not None}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in present.items()}
        return replace(self, **changed)


def as_numbers(pixel_bytes: Tensor) -> Tensor:
    """Pixel bytes as fp32 from -1 to 1, identical bits on every device."""
    # A GPU divides by a Python number through its reciprocal, which rounds differently; by a tensor it
    # divides.
    half = torch.full((), 127.5, device=pixel_bytes.device)
    return pixel_bytes.to(torch.float32).div_(half).sub_(1)


@dataclass(frozen=True)
class CachedImage:
    """An image that was decoded before and is cached elsewhere."""

    row: int
    size: tuple[int, ...]
    """Six numbers as in `Batch.sizes`."""


@dataclass(frozen=True)
class Sample:
    """An image or its latents, with a caption or its embedding."""

    key: str
    """The sample's name, which is the same in every run."""
    picture: bytes | Image.Image | None = None
    """The bytes of its file, or the decoded image if a format's own library decodes it."""
    kept: CachedImage | None = None
    """In place of the image bytes."""
    caption: str | None = None
    captions: tuple[str, ...] = ()
    """Alternative captions, if there are any: each visit takes one of them."""
    latents: Tensor | None = None
    context: Tensor | None = None
    pooled: Tensor | None = None
    size: tuple[int, ...] | None = None
    """Six numbers as in `Batch.sizes`, if they are known in advance."""


class Source(Protocol):
    """Samples by number. Reading the same number twice gives the same sample, in any process.

    A source must survive being pickled or forked into a worker.
    """

    @property
    def identity(self) -> str:
        """Changes with the list of samples: a position in the order then refers to another sample."""
        ...

    @property
    def damage(self) -> Sequence[BadSample]:
        """Samples known to be missing before anything is read."""
        ...

    @property
    def empty_text(self) -> Text | None:
        """The embedding of the empty caption, if the source stores embeddings."""
        ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Read a sample; raises CorruptSampleError if that fails."""
        ...

    def size_of(self, index: int) -> tuple[int, int] | None:
        """Height and width of the image without decoding it; None if unknown."""
        ...

    def close(self) -> None:
        """Close open files."""
        ...
