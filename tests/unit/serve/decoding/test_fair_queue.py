"""Which client's image is decoded next, and how many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from calotype.serve.decoding.fair_queue import SMALL_PIXELS, FairTurns

pytestmark = pytest.mark.anyio

TINY, LARGE = 64, SMALL_PIXELS + 1


class Clients:
    """Images that are decoded until a test ends them."""

    def __init__(self, places: int, most_large_pixels: int = 10 * LARGE) -> None:
        self.turns = FairTurns(places, most_large_pixels)
        self.started: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def send(self, name: str, pixels: int) -> None:
        """An image; the first letter of its name is its client."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._decode(name, pixels))
        await self._settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._settle()

    async def leave(self, name: str) -> None:
        self._tasks[name].cancel()
        await self._settle()

    async def end_all(self) -> None:
        while not all(task.done() for task in self._tasks.values()):
            for name in self.started:
                self._ends[name].set()
            await self._settle()

    async def _decode(self, name: str, pixels: int) -> None:
        async with self.turns.turn(name[0], pixels):
            self.started.append(name)
            await self._ends[name].wait()

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


@asynccontextmanager
async def clients(places: int, most_large_pixels: int = 10 * LARGE) -> AsyncIterator[Clients]:
    made = Clients(places, most_large_pixels)
    yield made
    await made.end_all()
    for name in ("x1", "x2", "x3")[:places]:
        await made.send(name, TINY)
        assert made.started[-1] == name, "every place is free again"
    await made.end_all()


@pytest.mark.parametrize("pixels", [TINY, LARGE])
async def test_clients_take_turns(pixels: int) -> None:
    async with clients(1) as some:
        for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
            await some.send(name, pixels)
        for name in ("a1", "a2", "b1", "c1", "a3", "b2"):
            await some.end(name)
        assert some.started == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_small_images_wait_for_no_large_one_of_any_client() -> None:
    async with clients(3) as some:
        for name in ("a1", "a2", "b1", "c1"):
            await some.send(name, LARGE)
        await some.send("d1", TINY)
        await some.end("d1")
        await some.send("a3", TINY)
        assert some.started == ["a1", "b1", "d1", "a3"]


async def test_a_client_has_one_large_image_at_a_time() -> None:
    async with clients(3) as some:
        await some.send("a1", LARGE)
        await some.send("a2", LARGE)
        assert some.started == ["a1"]
        await some.send("b1", LARGE)
        await some.end("a1")
        assert some.started == ["a1", "b1", "a2"]


async def test_large_images_keep_to_a_budget_of_pixels_and_none_is_overtaken_for_ever() -> None:
    async with clients(4, most_large_pixels=3 * LARGE) as some:
        await some.send("a1", 2 * LARGE)
        await some.send("b1", 2 * LARGE)
        await some.send("c1", LARGE)
        assert some.started == ["a1"], "the one that has waited longest is next"
        await some.end("a1")
        assert some.started == ["a1", "b1", "c1"]


async def test_an_image_over_the_whole_budget_is_decoded_alone() -> None:
    async with clients(3, most_large_pixels=LARGE) as some:
        await some.send("a1", 5 * LARGE)
        await some.send("b1", LARGE)
        assert some.started == ["a1"]


async def test_a_client_that_leaves_makes_room() -> None:
    async with clients(1) as some:
        for name in ("a1", "b1", "c1", "d1"):
            await some.send(name, TINY)
        await some.leave("b1")
        await some.leave("a1")
        assert some.started == ["a1", "c1"]
        # At the same moment as its turn comes.
        some._ends["c1"].set()
        await some.leave("d1")
        await some.send("e1", TINY)
        assert some.started[-1] == "e1"
