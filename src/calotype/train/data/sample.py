"""One sample as a source gives it, and what every source offers. Knows no file format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from PIL import Image
from torch import Tensor

from calotype.train.data.batch import Text
from calotype.train.data.report import Unreadable


@dataclass(frozen=True)
class KeptPicture:
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
    kept: KeptPicture | None = None
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
    def damage(self) -> Sequence[Unreadable]:
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
