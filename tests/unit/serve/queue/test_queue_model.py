"""Any sequence of calls and restarts, against a dictionary that does the same."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository.complete import CANCELLED
from calotype.serve.queue.repository.rows import Counts
from calotype.serve.service import QueueFullError
from calotype.spec.job import FINAL_STATES
from tests.unit.serve.queue.conftest import asked, picture

LIMITS = QueueLimits(max_queued=8, max_queued_per_client=5, max_losses=3)


@dataclass
class Known:
    """What must be true of a job."""

    client: str
    priority: int
    number: int
    state: str = "queued"
    losses: int = 0
    stop_wanted: bool = False
    pictures: list[bytes] = field(default_factory=list)

    def lose(self) -> None:
        if self.state == "running":
            self.losses += 1
            self.come_back()

    def come_back(self) -> None:
        if self.stop_wanted:
            self.state = "cancelled"
        else:
            self.state = "failed" if self.losses == LIMITS.max_losses else "queued"


class QueueMachine(RuleBasedStateMachine):
    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="queue-model-"))
        self.runner = asyncio.Runner()
        self.queue = JobQueue(self.folder, LIMITS)
        self.known: dict[str, Known] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.submitted = 0

    def in_state(self, state: str) -> dict[str, Known]:
        return {job_id: known for job_id, known in self.known.items() if known.state == state}

    @rule(
        target=jobs,
        client=st.sampled_from(["ann", "bob", "cid"]),
        priority=st.sampled_from([0, 0, 5]),
        key=st.sampled_from([None, None, "k1", "k2"]),
    )
    def submit(self, client: str, priority: int, key: str | None) -> object:
        waiting = self.in_state("queued").values()
        own = sum(known.client == client for known in waiting)
        free = LIMITS.max_queued - len(waiting)
        full = free == 0 or own >= LIMITS.max_queued_per_client or own >= free
        earlier = self.keys.get((client, key)) if key else None
        try:
            job = self.runner.run(
                self.queue.submit(asked(client=client, priority=priority, idempotency_key=key))
            )
        except QueueFullError:
            assert full
            assert earlier is None
            return multiple()
        if earlier is not None:
            assert job.id == earlier
            return multiple()
        assert not full
        assert job.id not in self.known
        self.submitted += 1
        self.known[job.id] = Known(client, priority, self.submitted)
        if key:
            self.keys[client, key] = job.id
        return job.id

    @rule(most=st.integers(1, 3), alone=st.booleans())
    def claim(self, most: int, alone: bool) -> None:
        for job in self.runner.run(self.queue.claim(most, alone=alone)):
            known = self.known[job.id]
            assert known.state == "queued"
            assert alone == (known.losses >= 2)
            rivals = [one for one in self.in_state("queued").values() if (one.losses >= 2) == alone]
            assert known.priority == max(one.priority for one in rivals)
            siblings = [one for one in rivals if (one.client, one.priority) == (known.client, known.priority)]
            assert known.number == min(one.number for one in siblings)
            known.state = "running"

    @rule(job_id=jobs, text=st.sampled_from(["red", "green", "blue"]))
    def finish(self, job_id: str, text: str) -> None:
        if self.known[job_id].state != "queued":
            entered = self.runner.run(self.queue.finish(job_id, [picture(text)]))
            assert (entered is not None) == (self.known[job_id].state == "running")
            if entered is not None:
                self.known[job_id].state, self.known[job_id].pictures = "done", [text.encode()]

    @rule(job_id=jobs)
    def ask_to_stop(self, job_id: str) -> None:
        self.runner.run(self.queue.request_cancel(job_id))
        known = self.known[job_id]
        known.stop_wanted |= known.state == "running"
        known.state = "cancelled" if known.state == "queued" else known.state

    @rule(job_id=jobs)
    def leave(self, job_id: str) -> None:
        entered = self.runner.run(self.queue.end(job_id, CANCELLED))
        assert (entered is not None) == (self.known[job_id].state not in FINAL_STATES)
        if entered is not None:
            self.known[job_id].state = "cancelled"

    @rule(job_id=jobs, lost=st.booleans())
    def put_back(self, job_id: str, lost: bool) -> None:
        self.runner.run(self.queue.requeue([job_id], lost=lost))
        known = self.known[job_id]
        if known.state == "running":
            known.losses += lost
            known.come_back()

    @rule(job_id=consumes(jobs))
    def delete(self, job_id: str) -> None:
        if self.known[job_id].state in FINAL_STATES:
            self.runner.run(self.queue.delete(job_id))
            del self.known[job_id]
            self.keys = {key: owner for key, owner in self.keys.items() if owner != job_id}

    @rule()
    def restart(self) -> None:
        self.runner.run(self.queue.close())
        self.queue = JobQueue(self.folder, LIMITS)
        for known in self.known.values():
            known.lose()

    @invariant()
    def agrees(self) -> None:
        found = {job.id: job for job in self.runner.run(self.queue.jobs(limit=1000))}
        assert {job_id: job.state for job_id, job in found.items()} == {
            job_id: known.state for job_id, known in self.known.items()
        }
        queued = self.in_state("queued")
        alone = sum(known.losses >= 2 for known in queued.values())
        assert self.queue.counts == Counts(len(queued), len(self.in_state("running")), alone)
        positions = sorted(job.position for job in found.values() if job.position is not None)
        assert positions == list(range(len(queued)))
        kept = {path.read_bytes() for path in (self.folder / "pictures").iterdir()}
        assert kept == {data for known in self.known.values() for data in known.pictures}

    def teardown(self) -> None:
        self.runner.run(self.queue.close())
        self.runner.close()
        shutil.rmtree(self.folder)


TestQueueModel = QueueMachine.TestCase
TestQueueModel.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, derandomize=True, database=None
)
