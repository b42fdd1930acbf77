"""Jobs from the queue to workers, and what comes of them back. Belongs to one event loop.

Knows nothing of interfaces, nor of what may be asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from calotype.serve.deployment.asking import ModelQuestions
from calotype.serve.deployment.followers import Followers
from calotype.serve.deployment.outcomes import Outcomes, failed
from calotype.serve.deployment.seat import Seat, Sleep
from calotype.serve.deployment.settings import DeploymentSettings
from calotype.serve.deployment.timekeeper import Timekeeper
from calotype.serve.deployment.watching import Watchers
from calotype.serve.deployment.workers import StartWorker
from calotype.serve.deployment.workflow_run import WorkflowRun
from calotype.serve.messages import (
    Evaluated,
    Failed,
    Finished,
    ForgetResults,
    FromWorker,
    Hello,
    Load,
    Models,
    NodeNews,
    RunWorkflow,
    Stepped,
    Stop,
    Stopped,
    Unload,
    Watch,
    Work,
    WorkflowFinished,
)
from calotype.serve.metrics import Metrics
from calotype.serve.queue.ending import Ending
from calotype.serve.queue.queue import JobQueue
from calotype.serve.service import Happening, UnavailableError
from calotype.spec.job import FINAL_STATES, Job, JobKind, JobPicture, WorkflowReport

_log = logging.getLogger(__name__)

_OfJob = Stepped | NodeNews | Finished | WorkflowFinished | Failed | Stopped
_PNG = b"\x89PNG"


@dataclass(eq=False)
class _Running:
    """A job that a worker has."""

    job: Job
    seat: Seat
    steps: tuple[int, int]
    sent: bool = False
    stop_wanted: bool = False
    workflow: WorkflowRun | None = None
    """What it has told, where it is a workflow."""

    def as_it_stands(self) -> Job:
        return self.job.model_copy(update={"steps_done": self.steps[0], "steps_total": self.steps[1]})


class Dispatcher:
    """Keeps workers busy with the queue's jobs."""

    def __init__(
        self,
        queue: JobQueue,
        workers: Mapping[str, StartWorker],
        settings: DeploymentSettings,
        metrics: Metrics,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._queue, self._settings, self._metrics, self._sleep = queue, settings, metrics, sleep
        self.seats = [Seat(name, start, self, settings, sleep) for name, start in workers.items()]
        self.followers = Followers(self._standing)
        self.watchers = Watchers(self._previews_changed, self.followers.changed)
        self._outcomes = Outcomes(queue, self.watchers, metrics, settings, sleep)
        self._timekeeper = Timekeeper(queue, self._overdue, settings, sleep)
        self.draining = False
        self.queued, self._alone = 0, 0
        self._questions = ModelQuestions()
        self._wanted_models: dict[str, None] = {}
        """Loaded by request, so that a worker's successor has to load them too."""
        self._running: dict[str, _Running] = {}
        self._reserved: Seat | None = None
        """Takes no more jobs, so that one can have it for itself."""
        self._wake, self._changed = asyncio.Event(), asyncio.Event()
        self._broken = False
        self._errands: set[asyncio.Task[None]] = set()
        self._keepers: set[asyncio.Task[None]] = set()
        self._seated: dict[Seat, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Start the workers and begin to hand out jobs; returns at once."""
        if self._queue.recovered:
            _log.warning("%d jobs were running when the last server died", len(self._queue.recovered))
        for job in self._queue.recovered:
            self._outcomes.tell(job)
        for seat in self.seats:
            self._seated[seat] = self.keep(seat.run())
        for loop in (self._keep_filling(), self._timekeeper.keep_deadlines(), self._timekeeper.keep_tidy()):
            self.keep(loop)
        self._wake.set()

    def keep(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this up to the deployment's end, which its failure would be."""
        keeper = asyncio.create_task(loop)
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keeper_done)
        return keeper

    def _keeper_done(self, task: asyncio.Task[None]) -> None:
        self._keepers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._broken = True
            _log.critical("the deployment cannot go on and takes no more jobs", exc_info=task.exception())

    def add(self, name: str, start: StartWorker) -> Seat:
        """One more worker, while others work."""
        seat = Seat(name, start, self, self._settings, self._sleep)
        self.seats.append(seat)
        self._seated[seat] = self.keep(seat.run())
        return seat

    async def retire(self, seat: Seat) -> None:
        """One worker less: it gets no more jobs, and goes when those it has have ended."""
        seat.leave()
        self._count_workers()
        # Others may have been kept from it, or waited for it.
        self._wake.set()
        await self.until(lambda: not seat.jobs)
        task = self._seated[seat]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del self._seated[seat]
        self.seats.remove(seat)
        self._questions.died(seat)
        for gauge in (self._metrics.memory_bytes, self._metrics.free_bytes):
            gauge.labels(seat.name).set(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something about jobs or workers."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def ready(self) -> bool:
        """Whether a worker is there to take jobs."""
        return not self._broken and any(seat.state == "ready" for seat in self.seats)

    @property
    def hopeless(self) -> str | None:
        """Why no worker will ever be there, if that is so."""
        if self._broken:
            return "it met a mistake of its own, which its log tells"
        if all(seat.state == "given up" for seat in self.seats):
            return (
                f"its workers keep dying: {'; '.join(f'{seat.name}: {seat.problem}' for seat in self.seats)}"
            )
        return None

    def accepted(self, job: Job) -> None:
        """A job has come into the queue."""
        if job.id not in self._running:
            self.followers.changed(job)
        self._wake.set()
        if job.deadline_at is not None:
            self._timekeeper.look_again()

    def as_it_stands(self, job: Job) -> Job:
        """The job with what its worker has said of it since."""
        running = self._running.get(job.id)
        return running.as_it_stands() if running and job.state == "running" else job

    async def cancel(self, job_id: str, client: str | None) -> Job:
        """Ask for a job's end."""
        before = await self._queue.job(job_id, client)
        if before.state in FINAL_STATES:
            return before
        job = await self._queue.ask_to_stop(job_id, client)
        if job.state in FINAL_STATES:
            self._outcomes.tell(job)
        elif running := self._running.get(job_id):
            running.stop_wanted = True
            await self._stop(running)
        return self.as_it_stands(job)

    async def load(self, model: str) -> None:
        """Have a model ready on every worker that is."""
        await self._questions.ask_all(self.seats, Load(model=model), self._settings.load_s)
        self._wanted_models[model] = None

    async def unload(self, model: str) -> None:
        self._wanted_models.pop(model, None)
        await self._questions.ask_all(self.seats, Unload(model=model), self._settings.load_s)

    async def free(self, *, models: bool, results: bool) -> None:
        """Have every worker let go its models, and what workflows' nodes made; without waiting for it."""
        for seat in [seat for seat in self.seats if seat.state == "ready"]:
            for held in seat.models if models else ():
                await seat.send(Unload(model=held.name))
            if results:
                await seat.send(ForgetResults())

    async def drain(self, seconds: float) -> None:
        """Hand out nothing more; what runs may end within `seconds`, then it stops and is queued again."""
        self.draining = True
        if not await self._quiet_within(seconds):
            for running in list(self._running.values()):
                await self._stop(running)
            await self._quiet_within(self._settings.stop_s)

    async def _quiet_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.until(lambda: not self._running and not self._errands)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End the workers; what they still had is queued for the next start."""
        self.draining = True
        if self._errands:
            await asyncio.wait(self._errands, timeout=self._settings.stop_s)
        tasks = [*self._keepers, *self._errands]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
        try:
            await self._queue.put_all_back()
        except UnavailableError as error:
            _log.error("running jobs could not be put back; the next start will: %s", error)
        self.watchers.close()
        self.followers.close()

    # Handing out

    async def _keep_filling(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._fill()
            except UnavailableError as error:
                _log.error("no jobs can be handed out: %s", error)
                await self._sleep(self._settings.first_pause_s)
                self._wake.set()

    async def _fill(self) -> None:
        room = sum(self._room(seat) for seat in self.seats)
        workflows = sum(self._room(seat, "workflow") for seat in self.seats)
        # Nothing more is begun while what was done cannot be kept.
        if self.draining or self._outcomes.refused or not room + workflows:
            self._count_queued(*await self._queue.waiting())
        else:
            claimed = await self._queue.claim(room, workflows=workflows)
            self._count_queued(claimed.queued, claimed.alone)
            await self._hand_out(claimed.jobs, self.seats)
        if not self.draining and not self._outcomes.refused:
            await self._fill_alone()

    def _count_queued(self, queued: int, alone: int) -> None:
        self.queued, self._alone = queued, alone
        self._metrics.queued.set(queued)

    def _room(self, seat: Seat, kind: JobKind = "pictures") -> int:
        if seat is self._reserved:
            return 0
        return seat.workflow_room if kind == "workflow" else seat.room

    async def _fill_alone(self) -> None:
        """One job at a time of those that may be what kills workers, on a worker that has nothing else."""
        ready = [seat for seat in self.seats if seat.state == "ready"]
        self._reserved = None
        if not self._alone or not ready or any(seat.alone for seat in ready):
            return
        emptiest = min(ready, key=lambda seat: len(seat.jobs))
        if emptiest.jobs:
            self._reserved = emptiest
            return
        claimed = await self._queue.claim(1, alone=True)
        if not claimed.jobs:
            claimed = await self._queue.claim(0, workflows=1, alone=True)
        self._count_queued(claimed.queued, claimed.alone)
        await self._hand_out(claimed.jobs, [emptiest])
        emptiest.alone = next((job.id for job in claimed.jobs if job.id in emptiest.jobs), None)

    async def _hand_out(self, jobs: Sequence[Job], seats: Sequence[Seat]) -> None:
        """Give claimed jobs to workers, all before any wait: from then on each can be stopped."""
        given = [self._give(job, seats) for job in jobs]
        nowhere = [job.id for job, running in zip(jobs, given, strict=True) if running is None]
        self._metrics.running.set(self.running)
        await self._outcomes.put_back(nowhere, lost=False)
        for running in given:
            if running is not None:
                await self._send_work(running)

    def _give(self, job: Job, seats: Sequence[Seat]) -> _Running | None:
        """Choose a worker: one that has the model, then the one with most room."""
        free = [seat for seat in seats if self._room(seat, job.kind) > 0]
        if not free:
            return None
        seat = max(free, key=lambda seat: (seat.holds(job.model), seat.room))
        seat.jobs.add(job.id)
        running = self._running[job.id] = _Running(job, seat, (job.steps_done, job.steps_total))
        if job.kind == "workflow":
            seat.workflows.add(job.id)
            running.workflow = WorkflowRun(
                job.id, self._outcomes, partial(self._tell_news, running), self._run_errand
            )
        # The time of day may have jumped.
        self._metrics.wait_seconds.observe(max(0.0, (job.started_at or 0.0) - job.created_at))
        self.watchers.tell(job)
        return running

    async def _send_work(self, running: _Running) -> None:
        job = running.job
        try:
            given = await self._queue.given(job)
        except OSError as error:
            self._leave(running)
            running.seat.workflows.discard(job.id)
            await self._outcomes.end(
                job.id, failed("internal", f"the picture given with it is gone: {error}")
            )
            return
        # Its worker may have died meanwhile.
        if self._running.get(job.id) is not running:
            return
        message = _workflow_of(job, given) if running.workflow else self._work_of(job, given)
        running.sent = True
        await running.seat.send(message, list(given.values()))
        if running.stop_wanted:
            await self._stop(running)

    def _work_of(self, job: Job, given: Mapping[str, bytes]) -> Work:
        return Work(
            job_id=job.id,
            model=job.model,
            request=job.request,
            has_image="image" in given,
            has_mask="mask" in given,
            previews=self.watchers.wants_previews(job.id),
        )

    async def _stop(self, running: _Running) -> None:
        if running.sent:
            await running.seat.send(Stop(job_id=running.job.id))

    def _leave(self, running: _Running) -> None:
        """Its worker has it no more."""
        self._running.pop(running.job.id, None)
        running.seat.jobs.discard(running.job.id)
        if running.seat.alone == running.job.id:
            running.seat.alone = None
        self._metrics.running.set(self.running)
        self._wake.set()
        self._changed.set()

    async def _overdue(self, job: Job) -> None:
        self._outcomes.tell(job)
        if running := self._running.get(job.id):
            await self._stop(running)

    # Hearing

    def heard(self, seat: Seat, message: FromWorker, attachments: list[bytes]) -> None:
        match message:
            case Stepped() | NodeNews() | Finished() | WorkflowFinished() | Failed() | Stopped():
                running = self._running.get(message.job_id)
                if running is not None and running.seat is seat:
                    self._heard_of_job(running, message, attachments)
            case Evaluated():
                self._metrics.step_seconds.observe(message.seconds)
                self._metrics.batch_rows.observe(message.rows)
                self._metrics.batch_jobs.observe(message.jobs)
            case Hello():
                self._count_workers()
                for model in self._wanted_models:
                    self._run_errand(seat.send(Load(model=model)))
                self._wake.set()
                self._changed.set()
            case _:
                self._questions.heard(seat, message)
                if isinstance(message, Models):
                    self._metrics.memory_bytes.labels(seat.name).set(message.memory_bytes)
                    self._metrics.free_bytes.labels(seat.name).set(message.free_bytes)

    def _heard_of_job(self, running: _Running, message: _OfJob, attachments: list[bytes]) -> None:
        match message:
            case Stepped():
                running.steps = (message.steps_done, message.steps_total)
                preview = attachments[0] if message.has_preview and attachments else None
                self.watchers.tell(running.as_it_stands(), preview)
            case NodeNews():
                if running.workflow is not None:
                    running.workflow.hear(message, attachments)
            case Finished():
                self._leave(running)
                self._run_errand(self._outcomes.finish(message, attachments, running.steps[1]))
            case _:
                self._leave(running)
                self._run_errand(self._ended(running, message))

    async def _ended(self, running: _Running, message: WorkflowFinished | Failed | Stopped) -> None:
        """The end of a job; the next workflow waits for it, so that ends are heard in their order."""
        try:
            await self._enter_end(running, message)
        finally:
            running.seat.workflows.discard(message.job_id)

    async def _enter_end(self, running: _Running, message: WorkflowFinished | Failed | Stopped) -> None:
        """Without pictures, or with those that a workflow told of before."""
        job_id, steps = message.job_id, running.steps
        report: WorkflowReport | None = None
        pictures: tuple[JobPicture, ...] = ()
        if running.workflow is not None:
            await running.workflow.settled()
            report = running.workflow.report(message.node if isinstance(message, Failed) else None)
            pictures = tuple(running.workflow.pictures)
        match message:
            case WorkflowFinished():
                steps = (steps[1], steps[1])
                ending = Ending("done", pictures, steps=steps, report=report)
                await self._outcomes.end(job_id, ending)
            case Failed():
                ending = Ending("failed", pictures, message.failure, steps=steps, report=report)
                await self._outcomes.end(job_id, ending)
            case Stopped() if running.stop_wanted:
                await self._outcomes.end(job_id, Ending("cancelled", pictures, steps=steps, report=report))
            case Stopped():
                # For a drain; or it is over anyhow, because its deadline has passed.
                await self._outcomes.put_back([job_id], lost=False)

    def _tell_news(self, running: _Running, news: NodeNews, preview: bytes | None) -> None:
        """Of a workflow that a worker runs, or has just ended."""
        running.steps = (news.nodes_done, news.nodes_total)
        job = running.as_it_stands()
        self.followers.tell(Happening(job, news, preview))
        if self._running.get(job.id) is running:
            self.watchers.tell(job, preview if preview is not None and preview.startswith(_PNG) else None)

    def _standing(self) -> Iterator[Happening]:
        """What workflows that run have come to."""
        for running in self._running.values():
            if running.workflow is not None:
                for news in running.workflow.standing():
                    yield Happening(running.as_it_stands(), news)

    async def died(self, seat: Seat, jobs: list[str]) -> None:
        self._questions.died(seat)
        self._count_workers()
        self._changed.set()
        if seat.state == "restarting":
            self._metrics.worker_restarts.labels(seat.name).inc()
        gone = [self._running[job_id] for job_id in jobs if job_id in self._running]
        for running in gone:
            self._leave(running)
        for sent in (True, False):
            these = [running for running in gone if running.sent is sent]
            if these:
                self._run_errand(self._lost(these, sent=sent))

    async def _lost(self, gone: Sequence[_Running], *, sent: bool) -> None:
        for running in gone:
            if running.workflow is not None:
                await running.workflow.settled()
        await self._outcomes.put_back([running.job.id for running in gone], lost=sent)

    def _count_workers(self) -> None:
        self._metrics.workers_ready.set(sum(seat.state == "ready" for seat in self.seats))

    def _previews_changed(self, job_id: str, wanted: bool) -> None:
        running = self._running.get(job_id)
        if running is not None and running.sent:
            self._run_errand(running.seat.send(Watch(job_id=job_id, previews=wanted)))

    def _run_errand(self, errand: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errand_done)
        return task

    def _errand_done(self, task: asyncio.Task[None]) -> None:
        self._errands.discard(task)
        self._changed.set()
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("an errand failed", exc_info=task.exception())


def _workflow_of(job: Job, given: Mapping[str, bytes]) -> RunWorkflow:
    return RunWorkflow(
        job_id=job.id,
        sequence=job.sequence,
        prompt=job.request["prompt"],
        outputs=tuple(job.request["outputs"]),
        extra_pnginfo=job.request["extra_data"].get("extra_pnginfo") or {},
        inputs=tuple(given),
    )
