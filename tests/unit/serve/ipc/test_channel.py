"""Frames between the two ends: whole, in order, and nothing that is none."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from threading import Thread

import pytest

from calotype.serve.ipc import channel as module
from calotype.serve.ipc.channel import AsyncChannel, BlockingChannel, ChannelError, frame
from calotype.serve.ipc.messages import (
    FROM_WORKER,
    TO_WORKER,
    Finished,
    FromWorker,
    Stop,
    Stopped,
    ToWorker,
    UnsendableError,
    Work,
)

WORK = Work(job_id="1", model="emoji", request={"prompt": "ein Apfel 🍎", "loras": []}, has_image=True)
PICTURES = [bytes(range(256)) * 5000, b"", b"\0" * 3]


def finished(job_id: str) -> Finished:
    return Finished(job_id=job_id, request={}, widths=(1, 2), heights=(3, 4), seeds=(5, 2**64 - 1))


def read_blocking(data: bytes) -> list[tuple[ToWorker, list[bytes]]]:
    ours, theirs = socket.socketpair()

    def write() -> None:
        with theirs:
            theirs.sendall(data)

    with ours:
        writer = Thread(target=write)
        writer.start()
        try:
            return list(BlockingChannel(ours, TO_WORKER))
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            writer.join(60)


def read_async(data: bytes) -> list[tuple[ToWorker, list[bytes]]]:
    async def read() -> list[tuple[ToWorker, list[bytes]]]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        channel = AsyncChannel(reader, None, TO_WORKER)  # type: ignore[arg-type]
        return [received async for received in channel]

    return asyncio.run(read())


Read = Callable[[bytes], list[tuple[ToWorker, list[bytes]]]]
both = pytest.mark.parametrize("read", [read_blocking, read_async])


@both
def test_messages_arrive_whole_and_in_order_until_the_end(read: Read) -> None:
    stop = Stop(job_id="1")
    data = frame(WORK, PICTURES) + frame(stop) + frame(stop, [b"x"])
    assert read(data) == [(WORK, PICTURES), (stop, []), (stop, [b"x"])]
    assert read(b"") == []


@both
@pytest.mark.parametrize("cut", [1, 7, 8, 20, 40, 60, -1])
def test_an_end_inside_a_frame_is_an_error(read: Read, cut: int) -> None:
    data = frame(WORK, [b"abc", b"def"])
    with pytest.raises(ChannelError, match="incomplete"):
        read(data[:cut])


@both
@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (struct.pack(">II", module.MAX_MESSAGE_BYTES + 1, 0), "its message has 4194305 bytes"),
        (struct.pack(">II", 10, module.MAX_ATTACHMENTS + 1), "10001 attachments"),
        (struct.pack(">IIQQ", 10, 2, 2**29, 2**29 + 1), "its attachments have 1073741825 bytes"),
        (struct.pack(">II", 5, 0) + b"{]}}}", "cannot be read"),
        (struct.pack(">II", 16, 0) + b'{"kind": "dance"', "cannot be read"),
        (struct.pack(">II", 17, 0) + b'{"kind": "dance"}', "cannot be read"),
        (struct.pack(">II", 30, 0) + b'{"kind":"stop","job_id":12345}', "cannot be read"),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_read(read: Read, data: bytes, rule: str) -> None:
    with pytest.raises(ChannelError, match=rule):
        read(data)


def test_too_much_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ATTACHMENT_BYTES", 10)
    assert frame(WORK, [b"12345", b"67890"])
    with pytest.raises(UnsendableError, match="the limit is 10"):
        frame(WORK, [b"12345", b"678901"])
    with pytest.raises(UnsendableError, match="message"):
        frame(WORK.model_copy(update={"request": {"prompt": "x" * module.MAX_MESSAGE_BYTES}}))
    with pytest.raises(UnsendableError, match="as JSON"):
        frame(WORK.model_copy(update={"request": {"prompt": "\ud800"}}))


def test_both_ends_talk_at_once_and_large_pictures_hold_nobody_up() -> None:
    """Each side sends more than a socket's buffer holds before it reads anything."""

    async def server(connection: socket.socket) -> list[tuple[FromWorker, list[bytes]]]:
        channel = await AsyncChannel.over(connection, FROM_WORKER)
        await asyncio.gather(*(channel.send(WORK, PICTURES) for _ in range(5)))
        heard = channel.__aiter__()
        received = [await anext(heard) for _ in range(5)]
        await channel.close()
        return received

    def worker() -> None:
        channel = BlockingChannel(theirs, TO_WORKER)
        for number in range(5):
            channel.send(finished(str(number)), PICTURES)
        heard.extend(channel)

    ours, theirs = socket.socketpair()
    heard: list[tuple[ToWorker, list[bytes]]] = []
    thread = Thread(target=worker)
    thread.start()
    received = asyncio.run(server(ours))
    thread.join(10)
    assert received == [(finished(str(number)), PICTURES) for number in range(5)]
    assert heard == [(WORK, PICTURES)] * 5
    theirs.close()


def test_closing_writes_what_is_left() -> None:
    ours, theirs = socket.socketpair()
    worker = BlockingChannel(theirs, TO_WORKER)
    for number in range(20):
        worker.send(Stopped(job_id=str(number)))
    worker.close()

    async def rest() -> list[str]:
        channel = await AsyncChannel.over(ours, FROM_WORKER)
        said = [message.job_id async for message, _ in channel if isinstance(message, Stopped)]
        await channel.close()
        return said

    assert asyncio.run(rest()) == [str(number) for number in range(20)]


def test_sending_to_who_has_gone_is_an_error() -> None:
    async def send() -> None:
        ours, theirs = socket.socketpair()
        channel = await AsyncChannel.over(ours, FROM_WORKER)
        theirs.close()
        try:
            for _ in range(100):
                await channel.send(WORK, PICTURES)
        finally:
            await channel.close()

    with pytest.raises(ChannelError, match="disconnected"):
        asyncio.run(send())
