"""Sends and receives messages with attachments as frames on a stream socket.

Workers use threads, the server asyncio. A frame is two numbers (length of the message, number of
attachments), the length of each attachment, the message as JSON, and the attachments. Nothing in it is ever
executed. If the peer closes the socket between two frames, iterating ends; a partial frame, a frame over the
limits or an invalid message is a ChannelError.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from calotype.core.errors import CalotypeError
from calotype.serve.ipc.messages import UnsendableError

MAX_MESSAGE_BYTES = 4 * 2**20
MAX_ATTACHMENTS = 10_000
"""A job has at most this many images."""
MAX_ATTACHMENT_BYTES = 2**30
MAX_FRAME_BYTES = 2**16
"""Queued frames are joined up to this size, because every write wakes the peer."""
_HEAD = struct.Struct(">II")
_LENGTH = struct.Struct(">Q")
Received = TypeVar("Received")
"""The type of received messages."""


class ChannelError(CalotypeError):
    """An invalid frame was received, or the peer has disconnected."""


def frame(message: BaseModel, attachments: Sequence[bytes] = ()) -> bytes:
    """A message and its attachments, encoded."""
    try:
        text = message.model_dump_json().encode()
    except PydanticSerializationError as error:
        raise UnsendableError(f"a message cannot be written as JSON: {error}") from error
    lengths = [len(attachment) for attachment in attachments]
    if rule := _too_large(len(text), len(lengths), sum(lengths)):
        raise UnsendableError(rule)
    sizes = b"".join(_LENGTH.pack(length) for length in lengths)
    return b"".join([_HEAD.pack(len(text), len(lengths)), sizes, text, *attachments])


def _too_large(message_bytes: int, num_attachments: int, attached_bytes: int) -> str | None:
    for what, value, limit in (
        ("its message has {} bytes", message_bytes, MAX_MESSAGE_BYTES),
        ("it has {} attachments", num_attachments, MAX_ATTACHMENTS),
        ("its attachments have {} bytes", attached_bytes, MAX_ATTACHMENT_BYTES),
    ):
        if value > limit:
            return f"a frame is too large: {what.format(value)}, the limit is {limit}"
    return None


def _check(message_bytes: int, num_attachments: int, attached_bytes: int = 0) -> None:
    if rule := _too_large(message_bytes, num_attachments, attached_bytes):
        raise ChannelError(rule)


def _lengths(data: bytes) -> list[int]:
    return [length for (length,) in _LENGTH.iter_unpack(data)]


def _parse(messages: TypeAdapter[Received], text: bytes) -> Received:
    try:
        return messages.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ChannelError(f"a message cannot be read: {where}: {first['msg']}") from None


def _incomplete_frame(got: int, wanted: int) -> ChannelError:
    return ChannelError(f"a frame is incomplete: {got} of {wanted} bytes arrived before the end")


class BlockingChannel(Generic[Received]):
    """A worker's end. `send` never blocks: a thread writes. Iterating blocks until the peer disconnects."""

    def __init__(self, connection: socket.socket, messages: TypeAdapter[Received]) -> None:
        self._connection, self._messages = connection, messages
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = Thread(target=self._write, name="channel writer", daemon=True)
        self._writer.start()

    def send(self, message: BaseModel, attachments: Sequence[bytes] = ()) -> None:
        """Queue a message; may be called from any thread, and keeps the order of the calls."""
        self._outgoing.put(frame(message, attachments))

    def close(self, timeout_s: float = 5.0) -> None:
        """Write the queued frames while the peer reads, then close."""
        self._outgoing.put(None)
        self._writer.join(timeout_s)
        self._connection.close()

    def __iter__(self) -> Iterator[tuple[Received, list[bytes]]]:
        while head := self._read(_HEAD.size, may_end=True):
            message_bytes, num_attachments = _HEAD.unpack(head)
            _check(message_bytes, num_attachments)
            lengths = _lengths(self._read(num_attachments * _LENGTH.size))
            _check(message_bytes, num_attachments, sum(lengths))
            message = _parse(self._messages, self._read(message_bytes))
            yield message, [self._read(length) for length in lengths]

    def _read(self, wanted: int, *, may_end: bool = False) -> bytes:
        data = bytearray(wanted)
        got = 0
        while got < wanted:
            try:
                count = self._connection.recv_into(memoryview(data)[got:])
            except ConnectionError:
                count = 0
            if count == 0:
                if may_end and got == 0:
                    return b""
                raise _incomplete_frame(got, wanted)
            got += count
        return bytes(data)

    def _write(self) -> None:
        closing = False
        while not closing:
            frames, size = [self._outgoing.get()], 0
            while frames[-1] is not None and (size := size + len(frames[-1])) < MAX_FRAME_BYTES:
                if self._outgoing.empty():
                    break
                frames.append(self._outgoing.get())
            closing = frames[-1] is None
            try:
                self._connection.sendall(b"".join(frame for frame in frames if frame is not None))
            except OSError:
                # The peer has disconnected; the reading side gets the error too and handles it.
                return


class Writer(Protocol):
    """The output of a channel: a socket's asyncio.StreamWriter, or an object with its interface."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class AsyncChannel(Generic[Received]):
    """The server's end. Belongs to one event loop."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: Writer,
        messages: TypeAdapter[Received],
    ) -> None:
        self._reader, self._writer, self._messages = reader, writer, messages

    @classmethod
    async def over(cls, connection: socket.socket, messages: TypeAdapter[Received]) -> AsyncChannel[Received]:
        """A channel that owns this socket."""
        return cls(*await asyncio.open_unix_connection(sock=connection), messages)

    async def send(self, message: BaseModel, attachments: Sequence[bytes] = ()) -> None:
        """Send a message; waits while the peer is slow. ChannelError if it has disconnected."""
        # One write, so that the frames of several tasks cannot mix.
        self._writer.write(frame(message, attachments))
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise ChannelError(f"the peer has disconnected: {error}") from error

    async def __aiter__(self) -> AsyncIterator[tuple[Received, list[bytes]]]:
        while head := await self._read(_HEAD.size, may_end=True):
            message_bytes, num_attachments = _HEAD.unpack(head)
            _check(message_bytes, num_attachments)
            lengths = _lengths(await self._read(num_attachments * _LENGTH.size))
            _check(message_bytes, num_attachments, sum(lengths))
            message = _parse(self._messages, await self._read(message_bytes))
            yield message, [await self._read(length) for length in lengths]

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read(self, wanted: int, *, may_end: bool = False) -> bytes:
        try:
            return await self._reader.readexactly(wanted)
        except asyncio.IncompleteReadError as error:
            if may_end and not error.partial:
                return b""
            raise _incomplete_frame(len(error.partial), wanted) from None
        except ConnectionError:
            if may_end:
                return b""
            raise _incomplete_frame(0, wanted) from None
