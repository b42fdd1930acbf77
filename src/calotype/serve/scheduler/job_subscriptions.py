"""Subscriptions to one job's state, steps and previews.

A subscription holds one unread event, which the next one repositions, so a slow reader costs no memory and is
never far behind. The final event stays until it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from calotype.serve.service import UnavailableError
from calotype.spec.job import FINAL_STATES, Job, JobNews

PREVIEW_POLL_S = 5.0
"""How long previews are made, and the last one kept, after a client polled for it."""


class JobSubscription:
    """One subscriber to a job, or to its end only."""

    def __init__(self, *, previews: bool, steps: bool) -> None:
        self.previews, self.steps = previews, steps
        self.position: int | None = None
        """The queue position that was published last."""
        self._unread: JobNews | None = None
        self._changed = asyncio.Event()
        self._closed = False

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
        self.position = job.position
        self._unread = JobNews(job=job, preview=preview if self.previews else None)
        self._changed.set()

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._closed = True
        self._changed.set()

    async def events(self) -> AsyncIterator[JobNews]:
        """Events up to the job's end."""
        while True:
            news, self._unread = self._unread, None
            if news is not None:
                yield news
                if news.job.state in FINAL_STATES:
                    return
            elif self._closed:
                raise UnavailableError("the deployment stops; its jobs continue at its next start")
            else:
                await self._changed.wait()
                self._changed.clear()


class _PreviewPoll(NamedTuple):
    """A client that polls a job's preview: a subscription that is never read, and the timer that ends it."""

    subscription: JobSubscription
    end: asyncio.TimerHandle


class JobSubscriptions:
    """All subscriptions, by job.

    `on_preview_demand` is called when the first subscriber wants previews of a job, and when the last one no
    longer does; `on_change` for every published job.
    """

    def __init__(
        self,
        on_preview_demand: Callable[[str, bool], None],
        on_change: Callable[[Job], None] = lambda _: None,
    ) -> None:
        self._on_preview_demand, self._on_change = on_preview_demand, on_change
        self._subscriptions: dict[str, set[JobSubscription]] = {}
        self._polls: dict[str, _PreviewPoll] = {}
        self._closed = False

    @contextmanager
    def subscribe(
        self, job_id: str, *, previews: bool = False, steps: bool = True
    ) -> Iterator[JobSubscription]:
        """Subscribe to a job; without `steps`, to its end only."""
        subscription = JobSubscription(previews=previews, steps=steps)
        self._add(job_id, subscription)
        if self._closed:
            subscription.unsubscribe()
        try:
            yield subscription
        finally:
            self._remove(job_id, subscription)

    def poll_preview(self, job_id: str) -> bytes | None:
        """The latest preview, None at first; polling keeps previews enabled for PREVIEW_POLL_S."""
        before = self._polls.get(job_id)
        if before is not None:
            before.end.cancel()
            subscription = before.subscription
        else:
            subscription = JobSubscription(previews=True, steps=True)
            self._add(job_id, subscription)
        end = asyncio.get_running_loop().call_later(PREVIEW_POLL_S, self._end_poll, job_id)
        self._polls[job_id] = _PreviewPoll(subscription, end)
        return subscription.unread_preview

    def wants_previews(self, job_id: str) -> bool:
        return any(subscription.previews for subscription in self._subscriptions.get(job_id, ()))

    def wants_steps(self, job_id: str) -> bool:
        return any(subscription.steps for subscription in self._subscriptions.get(job_id, ()))

    def positions(self) -> dict[str, int]:
        """The position last published for each queued job; the furthest back where subscribers differ."""
        return {
            job_id: max(positions)
            for job_id, subscriptions in self._subscriptions.items()
            if (
                positions := [
                    subscription.position
                    for subscription in subscriptions
                    if subscription.position is not None
                ]
            )
        }

    def publish_position(self, job: Job) -> None:
        """Publish a queued job's new position to its subscribers only; its state has not changed."""
        for subscription in self._subscriptions.get(job.id, ()):
            if subscription.position is not None:
                subscription.deliver(job, None)

    def publish(self, job: Job, preview: bytes | None = None) -> None:
        self._on_change(job)
        for subscription in self._subscriptions.get(job.id, ()):
            subscription.deliver(job, preview)
        if job.state in FINAL_STATES:
            self._end_poll(job.id)

    def close(self) -> None:
        """End all subscriptions; their readers get an UnavailableError."""
        self._closed = True
        for job_id in list(self._polls):
            self._end_poll(job_id)
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.unsubscribe()

    def _add(self, job_id: str, subscription: JobSubscription) -> None:
        with self._notify_on_change(job_id):
            self._subscriptions.setdefault(job_id, set()).add(subscription)

    def _remove(self, job_id: str, subscription: JobSubscription) -> None:
        with self._notify_on_change(job_id):
            self._subscriptions[job_id].discard(subscription)
            if not self._subscriptions[job_id]:
                del self._subscriptions[job_id]

    def _end_poll(self, job_id: str) -> None:
        poll = self._polls.pop(job_id, None)
        if poll is not None:
            poll.end.cancel()
            self._remove(job_id, poll.subscription)

    @contextmanager
    def _notify_on_change(self, job_id: str) -> Iterator[None]:
        before = self.wants_previews(job_id)
        yield
        after = self.wants_previews(job_id)
        if before != after:
            self._on_preview_demand(job_id, after)
