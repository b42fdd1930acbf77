"""Pictures that have names: those given for workflows, and what workflows have made so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from calotype.serve.queue import uploads
from calotype.serve.queue.clock import Clock
from calotype.serve.queue.files import name_of
from calotype.serve.queue.made import MadePicture
from calotype.serve.queue.store import Store, aside
from calotype.serve.queue.uploads import Upload
from calotype.spec.job import JobPicture, PictureFile


class WorkflowPictures(Store):
    """A store's named pictures. Every method that changes something is on disk at its end."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._clock = clock
        super().__init__(folder)

    async def keep(self, job_id: str, pictures: Sequence[MadePicture]) -> tuple[JobPicture, ...] | None:
        """Keep what a running workflow has made so far, by name; None if it runs no more."""
        size = sum(len(made.data) for made in pictures)
        described = await aside(size, lambda: tuple(made.described() for made in pictures))
        files = {said.sha256: made.data for said, made in zip(described, pictures, strict=True)}
        kept = await self._with_files(
            files, partial(uploads.name_pictures, job_id=job_id, pictures=described)
        )
        return described if kept else None

    async def upload(
        self, client: str, file: PictureFile, data: bytes, *, overwrite: bool = False
    ) -> PictureFile:
        """Keep a picture for workflows to come; answers with the name it got."""
        name = await aside(len(data), lambda: name_of(data))
        enter = partial(
            uploads.enter,
            client=client,
            file=file,
            contents=(name, len(data)),
            now=self._clock.wall(),
            overwrite=overwrite,
        )
        chosen, let_go = await self._with_files({name: data}, self._if_sound(enter))
        await self._remove_unused(let_go)
        return chosen

    async def uploads(self, client: str | None = None) -> list[Upload]:
        """What a client has given."""
        return await self._read(partial(uploads.listed, client=client))

    async def missing(self, client: str, inputs: Mapping[str, PictureFile]) -> list[str]:
        """Those of a workflow's pictures that are not there, by what it calls them."""
        return await self._read(partial(uploads.missing, client=client, inputs=inputs))

    async def remove_upload(self, client: str, file: PictureFile) -> None:
        """Forget a given picture; jobs that have it keep it."""
        await self._remove_unused(await self._call(partial(uploads.remove, client=client, file=file)))

    async def named(self, file: PictureFile, client: str, *, others: bool = False) -> bytes:
        """An upload, or an image of a workflow, by its name: the client's own first.

        With `others`, a name that the client does not have is searched among all other clients' files.
        """
        sha256 = await self._read(partial(uploads.sha256_of, client=client, file=file, others=others))
        return await self._read_file(sha256, f"picture {file.filename!r}")
