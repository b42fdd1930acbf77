"""Whatever happens to jobs, to whoever follows them all. Knows nothing of where it comes from.

A follower reads at its own pace: of steps it has not read yet the latest stays. One that is too far behind is
left, so that it costs no memory; it comes back and looks how things stand.
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
    """One who follows a client's jobs, or everybody's."""

    def __init__(self, client: str | None) -> None:
        self.client = client
        self._unread: deque[JobEvent] = deque()
        self._arrived = asyncio.Event()
        self._over = False

    def deliver(self, happening: JobEvent) -> None:
        if self._over or self.client not in (None, happening.job.client):
            return
        if self._unread and _is_step(happening, of=self._unread[-1]):
            self._unread.pop()
        self._unread.append(happening)
        if len(self._unread) > MAX_UNREAD:
            self.unsubscribe()
        self._arrived.set()

    def unsubscribe(self) -> None:
        """There will be no more."""
        self._over = True
        self._arrived.set()

    async def events(self) -> AsyncIterator[JobEvent]:
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._over:
                return
            self._arrived.clear()
            await self._arrived.wait()


def _is_step(happening: JobEvent, *, of: JobEvent) -> bool:
    """Whether both tell how far the same node is."""
    one, other = happening.news, of.news
    return (
        one is not None
        and other is not None
        and one.happened == other.happened == "progressed"
        and (one.job_id, one.node) == (other.job_id, other.node)
    )


class EventBus:
    """Everybody who follows. `standing` says what workflows that run have come to."""

    def __init__(self, standing: Callable[[], Iterable[JobEvent]]) -> None:
        self._standing = standing
        self._followers: set[EventSubscription] = set()
        self._states: dict[str, tuple[str, int]] = {}
        """What was told last of jobs that have not ended."""
        self._ended: deque[str] = deque(maxlen=MAX_ENDED)
        """A quick one may have ended before whoever accepted it comes to say that it waits."""
        self._over = False

    def publish_change(self, job: Job) -> None:
        """Tell of a job, if its state is another than was told last."""
        state = (job.state, job.attempts)
        if self._states.get(job.id) == state or job.id in self._ended:
            return
        if job.state in FINAL_STATES:
            self._states.pop(job.id, None)
            self._ended.append(job.id)
        else:
            self._states[job.id] = state
        self.publish(JobEvent(job))

    def expect_end(self, job_id: str) -> bool:
        """Whether it is known that the job has not ended; then its end is going to be told."""
        return job_id in self._states

    def publish(self, happening: JobEvent) -> None:
        for follower in self._followers:
            follower.deliver(happening)

    @contextmanager
    def subscribe(self, client: str | None) -> Iterator[AsyncIterator[JobEvent]]:
        """From how things stand to when the reader or the deployment leaves."""
        follower = EventSubscription(client)
        for happening in self._standing():
            follower.deliver(happening)
        if self._over:
            follower.unsubscribe()
        self._followers.add(follower)
        try:
            yield follower.events()
        finally:
            self._followers.discard(follower)

    def close(self) -> None:
        """Nobody will hear anything any more."""
        self._over = True
        for follower in self._followers:
            follower.unsubscribe()
