"""Images decoded in processes: what comes of them, and what becomes of the processes."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys

import pytest
from PIL import Image

from calotype.core.errors import RequestError
from calotype.core.process import process_start_time
from calotype.serve.decoding.decoder import MAX_WAITING, ImageDecoder
from calotype.serve.decoding.fair_queue import SMALL_PIXELS
from calotype.serve.decoding.operations import ALPHA, CHECK, preview, with_alpha
from calotype.serve.service import QueueFullError
from calotype.serve.settings import ServeSettings
from tests.polling import until

pytestmark = pytest.mark.anyio


def png(side: int, mode: str = "L") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (side, side)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


LARGE_SIDE = 4096
TINY, LARGE = png(8), png(LARGE_SIDE)
assert LARGE_SIDE**2 > SMALL_PIXELS
SLOW = preview("webp", 90, keeps_alpha=False)
"""Of a large image it takes longer than any number of small ones."""


@pytest.fixture
def decoder() -> ImageDecoder:
    return ImageDecoder(ServeSettings())


async def decoding(decoder: ImageDecoder, number: int) -> None:
    """Until so many large images are being decoded."""
    await asyncio.to_thread(until, lambda: decoder.turns.large >= number, "large images are being decoded")


async def test_a_small_image_of_another_client_is_done_before_a_large_one(decoder: ImageDecoder) -> None:
    done: list[str] = []

    async def decode(data: bytes, client: str) -> None:
        await decoder.changed(data, "image", SLOW, client=client)
        done.append(client)

    large = asyncio.create_task(decode(LARGE, "ann"))
    await decoding(decoder, 1)
    await decode(TINY, "bob")
    assert done == ["bob"]
    await large
    assert done == ["bob", "ann"]


async def test_the_process_of_a_large_image_ends_and_that_of_small_ones_stays(decoder: ImageDecoder) -> None:
    await decoder.changed(TINY, "image", CHECK, client="ann")
    (small,) = decoder.processes.pids
    await decoder.changed(LARGE, "image", CHECK, client="ann")
    assert decoder.processes.started == 2
    for _ in range(5):
        await decoder.changed(TINY, "image", CHECK, client="bob")
    assert decoder.processes.pids == [small]
    assert decoder.processes.started == 2


async def test_decoding_for_a_client_that_has_gone_is_killed(decoder: ImageDecoder) -> None:
    task = asyncio.create_task(decoder.changed(LARGE, "image", SLOW, client="ann"))
    await decoding(decoder, 1)
    pids = decoder.processes.pids
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = decoder.processes.pids
    assert len(left) == len(pids) - 1
    (killed,) = set(pids) - set(left)
    await asyncio.to_thread(until, lambda: process_start_time(killed) is None, "its process is gone")


async def test_what_takes_too_long_is_refused_and_its_process_killed() -> None:
    decoder = ImageDecoder(ServeSettings(), timeout_s=0.0)
    with pytest.raises(RequestError, match="image: was not decoded within 0 s; scale it down"):
        await decoder.changed(TINY, "image", CHECK, client="ann")
    assert decoder.processes.pids == []


async def test_a_process_that_dies_is_one_image_s_error(decoder: ImageDecoder) -> None:
    await decoder.changed(TINY, "image", CHECK, client="ann")
    (pid,) = decoder.processes.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RequestError, match=r"its process ended \(exit status -9\)"):
        await decoder.changed(TINY, "image", CHECK, client="ann")
    assert await decoder.changed(TINY, "image", CHECK, client="ann") == b""


async def test_a_mask_counts_as_its_image_does(decoder: ImageDecoder) -> None:
    """A large mask for a small image is not decoded in the process that stays."""
    mask = await decoder.changed(LARGE, "image", ALPHA, client="ann")
    before = decoder.processes.started
    masked = await decoder.changed(TINY, "image", with_alpha(mask), client="ann")
    assert Image.open(io.BytesIO(masked)).size == (8, 8)
    assert decoder.processes.started == before + 1


async def test_an_image_over_the_limit_is_refused_with_the_limit() -> None:
    decoder = ImageDecoder(ServeSettings(most_pixels=SMALL_PIXELS + 1))
    with pytest.raises(RequestError, match=r"the given mask is 4096×4096, the limit is 4194305 pixels"):
        await decoder.changed(LARGE, "mask", CHECK, client="ann")


async def test_a_client_may_have_only_so_many_images_wait(decoder: ImageDecoder) -> None:
    async def decode(client: str) -> bytes:
        return await decoder.changed(TINY, "image", CHECK, client=client)

    waiting = [asyncio.create_task(decode("ann")) for _ in range(MAX_WAITING + 3)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError, match=f"{MAX_WAITING} images of this client wait"):
        await decode("ann")
    other = asyncio.create_task(decode("bob"))
    assert await asyncio.gather(*waiting, other) == [b""] * (MAX_WAITING + 4)


def test_processes_end_with_the_decoder() -> None:
    decoder = ImageDecoder(ServeSettings())
    asyncio.run(decoder.changed(TINY, "image", CHECK, client="ann"))
    (pid,) = decoder.processes.pids
    del decoder
    until(lambda: process_start_time(pid) is None, "its process is gone")


def test_a_decoding_process_imports_no_torch() -> None:
    program = (
        "import sys, calotype.serve.decoding.child_process; "
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "[]"
