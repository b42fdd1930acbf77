"""A generated image before it is stored."""

from __future__ import annotations

from dataclasses import dataclass

from calotype.serve.queue.blob_store import blob_name
from calotype.spec.job import JobPicture, PictureFile


@dataclass(frozen=True)
class GeneratedImage:
    """A finished image as a worker sends it."""

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
