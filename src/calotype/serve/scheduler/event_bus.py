"""Publishes the events of all jobs to subscribers.

A subscriber reads at its own pace; of unread steps of one node only the latest is kept. A subscriber that is
too far behind is dropped, so that it costs no memory; it can subscribe again and read the current state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager

from calotype.serve.service import JobEvent
from calotype.spec.job import FINAL_STATES, Job

MAX_UNREAD = 2000
MAX_ENDED = 1000


class EventSubscription:
    """A subscription to one client's jobs, or to all jobs."""

    def __init__(self, client: str | None) -> None:
        self.client = client
        self._unread: deque[JobEvent] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def deliver(self, event: JobEvent) -> None:
        if self._closed or self.client not in (None, event.job.client):
            return
        if self._unread and _is_step(event, of=self._unread[-1]):
            self._unread.pop()
        self._unread.append(event)
        if len(self._unread) > MAX_UNREAD:
            self.unsubscribe()
        self._changed.set()

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._closed = True
        self._changed.set()

    async def events(self) -> AsyncIterator[JobEvent]:
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()


def _is_step(event: JobEvent, *, of: JobEvent) -> bool:
    """Whether both events report the progress of the same node."""
    one, other = event.news, of.news
    return (
        one is not None
        and other is not None
        and one.happened == other.happened == "progressed"
        and (one.job_id, one.node) == (other.job_id, other.node)
    )


class EventBus:
    """All subscribers. `current_events` yields events for the current state of running workflows."""

    def __init__(self, current_events: Callable[[], Iterable[JobEvent]]) -> None:
        self._current_events = current_events
        self._subscriptions: set[EventSubscription] = set()
        self._states: dict[str, tuple[str, int]] = {}
        """The state and attempt last published of jobs that have not ended."""
        self._recently_ended: deque[str] = deque(maxlen=MAX_ENDED)
        """Jobs that ended lately: a quick job may end before its acceptance is published."""
        self._closed = False

    def publish_change(self, job: Job) -> None:
        """Publish a job if its state or attempt has changed since the last time."""
        state = (job.state, job.attempts)
        if self._states.get(job.id) == state or job.id in self._recently_ended:
            return
        if job.state in FINAL_STATES:
            self._states.pop(job.id, None)
            self._recently_ended.append(job.id)
        else:
            self._states[job.id] = state
        self.publish(JobEvent(job))

    def expect_end(self, job_id: str) -> bool:
        """Whether the job is known not to have ended, so that its end will be published."""
        return job_id in self._states

    def publish(self, event: JobEvent) -> None:
        for subscription in self._subscriptions:
            subscription.deliver(event)

    @contextmanager
    def subscribe(self, client: str | None) -> Iterator[AsyncIterator[JobEvent]]:
        """Subscribe, beginning with the current state of running workflows."""
        subscription = EventSubscription(client)
        for event in self._current_events():
            subscription.deliver(event)
        if self._closed:
            subscription.unsubscribe()
        self._subscriptions.add(subscription)
        try:
            yield subscription.events()
        finally:
            self._subscriptions.discard(subscription)

    def close(self) -> None:
        """End all subscriptions."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription.unsubscribe()
