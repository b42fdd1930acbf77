"""A picture that was made, before it is kept. Knows nothing of where."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.serve.queue.blob_store import blob_name
from calotype.spec.job import JobPicture, PictureFile


@dataclass(frozen=True)
class GeneratedImage:
    """A finished picture as it comes from a worker."""

    data: bytes
    width: int
    height: int
    seed: int | None = None
    file: PictureFile | None = None

    def described(self) -> JobPicture:
        return JobPicture(
            sha256=blob_name(self.data),
            bytes=len(self.data),
            width=self.width,
            height=self.height,
            seed=self.seed,
            file=self.file,
        )
