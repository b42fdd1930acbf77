"""News of jobs to whoever looks. Knows nothing of where news come from.

A reader has one place for news, where the next replaces what it has not read yet: it is never far behind,
costs nothing however slow it is, and the end stays until it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from calotype.serve.service import UnavailableError
from calotype.spec.job import FINAL_STATES, Job, JobNews

PREVIEW_POLL_S = 5.0
"""How long previews are made, and the last one kept, after somebody asked for it."""


class JobSubscription:
    """One who looks at a job, or waits for its end."""

    def __init__(self, *, previews: bool, steps: bool) -> None:
        self.previews, self.steps = previews, steps
        self.place: int | None = None
        """In the queue, as it was told last."""
        self._unread: JobNews | None = None
        self._arrived = asyncio.Event()
        self._over = False

    @property
    def unread_preview(self) -> bytes | None:
        return self._unread.preview if self._unread is not None else None

    def deliver(self, job: Job, preview: bytes | None) -> None:
        if not self.steps and job.state not in FINAL_STATES:
            return
        if self._unread is not None and self._unread.job.state in FINAL_STATES:
            return
        if preview is None and self._unread is not None:
            preview = self._unread.preview
        self.place = job.position
        self._unread = JobNews(job=job, preview=preview if self.previews else None)
        self._arrived.set()

    def unsubscribe(self) -> None:
        """There will be no more."""
        self._over = True
        self._arrived.set()

    async def events(self) -> AsyncIterator[JobNews]:
        """Up to the job's end."""
        while True:
            news, self._unread = self._unread, None
            if news is not None:
                yield news
                if news.job.state in FINAL_STATES:
                    return
            elif self._over:
                raise UnavailableError("the deployment stops; its jobs go on at its next start")
            else:
                await self._arrived.wait()
                self._arrived.clear()


class _PreviewPoll(NamedTuple):
    """Somebody who looks at a job now and then: a watcher that never reads, and when it is over."""

    watcher: JobSubscription
    end: asyncio.TimerHandle


class JobSubscriptions:
    """Everybody who looks. `on_previews` hears when the first, or no one any more, wants to see a job.

    `on_change` hears of every job that is told of.
    """

    def __init__(
        self, on_previews: Callable[[str, bool], None], on_change: Callable[[Job], None] = lambda _: None
    ) -> None:
        self._on_previews, self._on_change = on_previews, on_change
        self._watchers: dict[str, set[JobSubscription]] = {}
        self._glances: dict[str, _PreviewPoll] = {}
        self._over = False

    @contextmanager
    def subscribe(
        self, job_id: str, *, previews: bool = False, steps: bool = True
    ) -> Iterator[JobSubscription]:
        """Without `steps`, of its end alone."""
        watcher = JobSubscription(previews=previews, steps=steps)
        self._enter(job_id, watcher)
        if self._over:
            watcher.unsubscribe()
        try:
            yield watcher
        finally:
            self._leave(job_id, watcher)

    def poll_preview(self, job_id: str) -> bytes | None:
        """The last preview of a job since it was first asked for; for who asks again within some seconds."""
        before = self._glances.get(job_id)
        if before is not None:
            before.end.cancel()
            watcher = before.watcher
        else:
            watcher = JobSubscription(previews=True, steps=True)
            self._enter(job_id, watcher)
        end = asyncio.get_running_loop().call_later(PREVIEW_POLL_S, self._forget_glance, job_id)
        self._glances[job_id] = _PreviewPoll(watcher, end)
        return watcher.unread_preview

    def wants_previews(self, job_id: str) -> bool:
        return any(watcher.previews for watcher in self._watchers.get(job_id, ()))

    def wants_steps(self, job_id: str) -> bool:
        return any(watcher.steps for watcher in self._watchers.get(job_id, ()))

    def places(self) -> dict[str, int]:
        """What was told last of jobs that wait; where it differs, the place that is furthest back."""
        return {
            job_id: max(places)
            for job_id, watchers in self._watchers.items()
            if (places := [watcher.place for watcher in watchers if watcher.place is not None])
        }

    def publish_position(self, job: Job) -> None:
        """A waiting job has another place: no change that anybody but those who look at it has to know."""
        for watcher in self._watchers.get(job.id, ()):
            if watcher.place is not None:
                watcher.deliver(job, None)

    def publish(self, job: Job, preview: bytes | None = None) -> None:
        self._on_change(job)
        for watcher in self._watchers.get(job.id, ()):
            watcher.deliver(job, preview)
        if job.state in FINAL_STATES:
            self._forget_glance(job.id)

    def close(self) -> None:
        """Nobody will hear anything any more, and is told so."""
        self._over = True
        for job_id in list(self._glances):
            self._forget_glance(job_id)
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.unsubscribe()

    def _enter(self, job_id: str, watcher: JobSubscription) -> None:
        with self._telling(job_id):
            self._watchers.setdefault(job_id, set()).add(watcher)

    def _leave(self, job_id: str, watcher: JobSubscription) -> None:
        with self._telling(job_id):
            self._watchers[job_id].discard(watcher)
            if not self._watchers[job_id]:
                del self._watchers[job_id]

    def _forget_glance(self, job_id: str) -> None:
        glance = self._glances.pop(job_id, None)
        if glance is not None:
            glance.end.cancel()
            self._leave(job_id, glance.watcher)

    @contextmanager
    def _telling(self, job_id: str) -> Iterator[None]:
        before = self.wants_previews(job_id)
        yield
        after = self.wants_previews(job_id)
        if before != after:
            self._on_previews(job_id, after)
