"""The interface of decoding: decodes a client's image in turn in another process and converts it."""

from __future__ import annotations

import asyncio
from typing import Any

from calotype.core.errors import Problem, RequestError
from calotype.imaging.image_io import TooManyPixelsError
from calotype.serve.decoding.fair_queue import SMALL_PIXELS, FairTurns
from calotype.serve.decoding.operations import CHECK, Operation
from calotype.serve.decoding.process_pool import DecodingProcesses, ProcessEndedError
from calotype.serve.service import QueueFullError
from calotype.serve.settings import ServeSettings

PROCESSES = 3
"""At most two decode large images; the third is reserved for small ones."""
MAX_WAITING = 64
"""Waiting images of one client; each keeps its file in memory."""
TIMEOUT_S = 120.0
_RETRY_S = 1.0


class ImageDecoder:
    """Decodes images in child processes, with fair turns between clients. For one event loop."""

    def __init__(self, settings: ServeSettings, *, timeout_s: float = TIMEOUT_S) -> None:
        self._most_pixels, self._timeout_s = settings.most_pixels, timeout_s
        self.turns = FairTurns(PROCESSES, settings.most_pixels_in_flight)
        self.processes = DecodingProcesses(PROCESSES)

    async def changed(self, data: bytes, field: str, operation: Operation, *, client: str) -> bytes:
        """Apply an operation to an image and return the resulting file; cancelling this ends the decoding.

        The image's size is unknown until a decoding process has read it, so every image starts as small.
        """
        if self.turns.waiting(client) >= MAX_WAITING:
            raise QueueFullError(
                f"{MAX_WAITING} images of this client wait to be decoded, which is the limit; send fewer "
                f"at once",
                _RETRY_S,
            )
        max_pixels = min(SMALL_PIXELS, self._most_pixels)
        while True:
            async with self.turns.turn(client, max_pixels):
                values, files = await self._ask(data, field, operation, max_pixels)
            if values["kind"] != "larger":
                return _file(values, files)
            width, height = int(values["width"]), int(values["height"])
            if not max_pixels < width * height <= self._most_pixels:
                raise TooManyPixelsError(field, f"the given {field}", (width, height), self._most_pixels)
            max_pixels = width * height

    async def _ask(
        self, data: bytes, field: str, operation: Operation, max_pixels: int
    ) -> tuple[dict[str, Any], list[bytes]]:
        values = {
            "operation": operation.name,
            "arguments": dict(operation.arguments),
            "field": field,
            "most_pixels": max_pixels,
        }
        attachments = [data] if operation.attachment is None else [data, operation.attachment]
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self.processes.ask(values, attachments, keep=max_pixels <= SMALL_PIXELS)
        except TimeoutError:
            rule = f"was not decoded within {self._timeout_s:g} s; scale it down"
        except ProcessEndedError as error:
            rule = f"could not be decoded: its process ended ({error}), perhaps out of memory; scale it down"
        raise RequestError([Problem(field, rule)])


def _file(values: dict[str, Any], files: list[bytes]) -> bytes:
    match values:
        case {"kind": "done"}:
            return files[0]
        case {"kind": "refused", "problems": list(problems)}:
            raise RequestError(Problem(str(field), str(rule)) for field, rule in problems)
        case _:
            raise RuntimeError(f"a decoding process failed: {values.get('reason')}")


class ClientImages:
    """A decoder bound to one client."""

    def __init__(self, decoder: ImageDecoder, client: str) -> None:
        self._decoder, self._client = decoder, client

    async def checked(self, data: bytes, field: str) -> bytes:
        """The same bytes, after their pixels were decoded; raises RequestError if they cannot be."""
        await self.changed(data, field, CHECK)
        return data

    async def changed(self, data: bytes, field: str, operation: Operation) -> bytes:
        """Apply an operation and return the resulting file."""
        return await self._decoder.changed(data, field, operation, client=self._client)
