"""A worker as a process of its own, over its channel: it works, and it ends when it should and only then."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PIL import Image

import calotype
from calotype.imaging.image_io import read_record
from calotype.serve.ipc.messages import (
    Evaluated,
    Failed,
    Finished,
    FromWorker,
    Hello,
    Load,
    Loading,
    Models,
    Stage,
    Stepped,
    Stop,
    Stopped,
    Unload,
    Watch,
    Work,
)
from calotype.serve.worker.options import WorkerOptions, parsed
from calotype.serve.worker.process import WorkerProcess, start_worker

NOTHING = WorkerOptions(engine="nothing", models=("m",), max_rows=4)
_SOURCE = str(Path(calotype.__file__).parents[1])
Message = TypeVar("Message")


class Ear:
    """What a worker says, in order."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._messages = worker.channel.__aiter__()

    async def until(self, kind: type[Message]) -> tuple[Message, list[bytes], list[FromWorker]]:
        """The next message of a kind with its attachments, and what came before it."""
        before: list[FromWorker] = []
        async for message, attachments in self._messages:
            if isinstance(message, kind):
                return message, attachments, before
            before.append(message)
        raise AssertionError(f"the worker ended without {kind.__name__}; it said {before}")

    async def rest(self) -> list[FromWorker]:
        return [message async for message, _ in self._messages]


@asynccontextmanager
async def started(
    options: WorkerOptions, log: Path, **environment: str
) -> AsyncIterator[tuple[WorkerProcess, Ear]]:
    with log.open("wb") as file:
        worker = await start_worker(
            options, log=file, environment={"PYTHONPATH": _SOURCE, "OMP_NUM_THREADS": "1", **environment}
        )
    try:
        yield worker, Ear(worker)
    finally:
        worker.kill()
        await worker.wait()
        await worker.channel.close()


def work(job_id: str, prompt: str | None = None, **knobs: Any) -> Work:
    model = knobs.pop("model", "m")
    return Work(job_id=job_id, model=model, request={"prompt": prompt or job_id, "steps": 3, **knobs})


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        # A worker that hangs must not hang the tests.
        await asyncio.wait_for(test(), 300)

    asyncio.run(limited())


def test_work_comes_back_as_steps_and_pictures(tmp_path: Path) -> None:
    async def talk() -> None:
        async with started(NOTHING, tmp_path / "log") as (worker, ear):
            hello, _, before = await ear.until(Hello)
            assert hello.pid == worker.pid
            assert hello.room == 4
            assert {type(message) for message in before} == {Loading, Models, Stage}
            await worker.channel.send(work("a", count=2, seed=7))
            finished, files, before = await ear.until(Finished)
            assert finished.job_id == "a"
            assert finished.seeds == (7, 8)
            assert [Image.open(BytesIO(file)).size for file in files] == [(8, 8), (8, 8)]
            steps = [message.steps for message in before if isinstance(message, Evaluated)]
            assert steps == [{"a": (done, 6)} for done in (2, 4, 6)]
            for fault in ("fault:open", "fault:evaluate", "fault:encode"):
                await worker.channel.send(work("bad", fault))
                failed, _, _ = await ear.until(Failed)
                assert failed.job_id == "bad"
            await worker.channel.send(work("b"))
            assert (await ear.until(Finished))[0].job_id == "b"

    run(talk)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert "job finished" in [line["message"] for line in lines if line.get("job_id") == "a"]
    assert all({"time", "level", "logger", "message", "worker_pid"} <= set(line) for line in lines)


def test_the_embedded_model_is_served(tmp_path: Path) -> None:
    async def talk() -> None:
        options = WorkerOptions(device="cpu", preset="fast", models=("emoji",))
        async with started(options, tmp_path / "log") as (worker, ear):
            hello, _, _ = await ear.until(Hello)
            assert (hello.device, hello.preset, hello.precision) == ("cpu", "fast", "fp32")
            for seed in (1, 2):
                sent = work(str(seed), "a red apple", model="emoji", seed=seed, width=64, height=64)
                await worker.channel.send(sent)
            for _ in range(2):
                finished, (picture,), _ = await ear.until(Finished)
                (tmp_path / "picture.png").write_bytes(picture)
                record = read_record(tmp_path / "picture.png")
                assert record.request["seed"] == int(finished.job_id)
                assert record.model.reference == "emoji"
                assert Image.open(BytesIO(picture)).size == (64, 64)

    run(talk)


def test_jobs_are_stopped_watched_and_models_come_and_go(tmp_path: Path) -> None:
    async def talk() -> None:
        async with started(NOTHING, tmp_path / "log") as (worker, ear):
            await worker.channel.send(work("slow", "fault:slow", steps=100))
            evaluated, _, before = await ear.until(Evaluated)
            assert evaluated.steps == {"slow": (1, 100)}
            assert not any(isinstance(message, Stepped) for message in before)
            await worker.channel.send(Watch(job_id="slow", previews=True))
            preview: list[bytes] = []
            while not preview:
                _, preview, _ = await ear.until(Stepped)
            await worker.channel.send(Stop(job_id="slow"))
            assert (await ear.until(Stopped))[0].job_id == "slow"
            await worker.channel.send(Load(model="n"))
            models, _, _ = await ear.until(Models)
            assert [model.name for model in models.models] == ["m", "n"]
            await worker.channel.send(Unload(model="m"))
            while len(models.models) != 1:
                models, _, _ = await ear.until(Models)
            assert [model.name for model in models.models] == ["n"]

    run(talk)


def test_the_worker_ends_with_the_channel(tmp_path: Path) -> None:
    async def talk() -> None:
        async with started(NOTHING, tmp_path / "log") as (worker, ear):
            await ear.until(Hello)
            await worker.channel.send(work("slow", "fault:slow", steps=1000))
            await ear.until(Evaluated)
            await worker.channel.close()
            assert await worker.wait() == 0

    run(talk)


def test_a_worker_that_has_hardly_begun_ends_with_the_channel_too(tmp_path: Path) -> None:
    async def talk() -> None:
        async with started(WorkerOptions(device="cpu"), tmp_path / "log") as (worker, _):
            await worker.channel.close()
            assert await worker.wait() == 0

    run(talk)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_signals_end_it_at_once_and_the_server_hears_it(tmp_path: Path, sent: signal.Signals) -> None:
    async def talk() -> None:
        async with started(NOTHING, tmp_path / "log") as (worker, ear):
            await worker.channel.send(work("slow", "fault:slow", steps=1000))
            await ear.until(Evaluated)
            (worker.terminate if sent == signal.SIGTERM else worker.kill)()
            assert await worker.wait() == -sent
            assert not [m for m in await ear.rest() if isinstance(m, Finished | Failed | Stopped)]

    run(talk)


def test_ctrl_c_is_for_the_server(tmp_path: Path) -> None:
    async def talk() -> None:
        async with started(NOTHING, tmp_path / "log") as (worker, ear):
            await ear.until(Hello)
            os.kill(worker.pid, signal.SIGINT)
            await worker.channel.send(work("a"))
            await ear.until(Finished)

    run(talk)


def test_a_worker_that_dies_at_work_is_seen_to_be_gone(tmp_path: Path) -> None:
    async def talk() -> None:
        async with started(NOTHING, tmp_path / "log") as (worker, ear):
            await worker.channel.send(work("deadly", "fault:kill"))
            await ear.rest()
            assert await worker.wait() == -signal.SIGKILL

    run(talk)


def test_nonsense_on_the_channel_ends_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with started(NOTHING, tmp_path / "log") as (worker, ear):
            await ear.until(Hello)
            await worker.channel.send(Stopped(job_id="not for a worker"))
            assert await worker.wait() == 1

    run(talk)
    assert "the channel is broken" in (tmp_path / "log").read_text()


def test_a_server_imports_no_torch_for_its_workers() -> None:
    """Nor does a worker whose engine does nothing."""
    names = "calotype.serve.worker.process, calotype.serve.worker.main, calotype.serve.worker.fake_engine"
    line = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": _SOURCE}
    assert (
        subprocess.run([sys.executable, "-c", line], env=environment, check=False, timeout=300).returncode
        == 0
    )


def test_options_survive_the_command_line() -> None:
    full = WorkerOptions(
        models=("a", "b c"),
        device="cuda:0",
        preset="fast",
        precision="bf16",
        memory_bytes=10**12,
        models_folder=Path("/some where"),
        max_rows=3,
        warm=True,
        engine="nothing:4",
    )
    for options in (full, NOTHING, WorkerOptions()):
        assert parsed(["--fd=5", *options.as_arguments()]) == (5, options)
