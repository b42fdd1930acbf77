"""What a client can rely on: the life of a job, whose turn it is, what is refused and what is remembered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calotype.core.errors import NotFoundError, RequestError
from calotype.serve.pagination import cursor_after
from calotype.serve.queue.blob_store import blob_name
from calotype.serve.queue.queue import JobQueue
from calotype.serve.queue.repository import history
from calotype.serve.queue.repository.complete import CANCELLED, OVERDUE, Completion
from calotype.serve.service import QueueFullError, UnavailableError
from calotype.spec.generate_request import MAX_SEED
from calotype.spec.job import Job, JobFailure
from tests.unit.serve.queue.conftest import Hands, OpenQueue, asked, picture

pytestmark = pytest.mark.anyio


async def served(queue: JobQueue) -> list[str]:
    """Prompts in the order in which they are claimed, until none is left."""
    prompts = []
    while claimed := await queue.claim(1):
        prompts.append(claimed[0].request["prompt"])
    return prompts


async def test_a_job_goes_from_queued_to_done(open_queue: OpenQueue, hands: Hands) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked("an apple", deadline_s=60.0))
        assert (job.state, job.position, job.created_at) == ("queued", 0, hands.wall)
        assert job.deadline_at == hands.wall + 60
        hands.pass_(2)
        (running,) = await queue.claim(4)
        assert (running.id, running.state, running.attempts) == (job.id, "running", 1)
        assert (running.position, running.started_at) == (None, hands.wall)
        hands.pass_(3)
        done = await queue.finish(
            job.id, [picture("one", MAX_SEED), picture("two", 0)], request={"width": 64}, steps=(4, 4)
        )
        assert done is not None
        assert done == await queue.job(job.id)
        assert (done.state, done.ended_at, done.steps_done) == ("done", hands.wall, 4)
        assert done.request == {"width": 64}
        assert [(p.seed, p.width, p.height, p.bytes) for p in done.pictures] == [
            (MAX_SEED, 64, 48, 3),
            (0, 64, 48, 3),
        ]
        assert await queue.picture(job.id, 1) == b"two"
        with pytest.raises(NotFoundError, match="no image 2"):
            await queue.picture(job.id, 2)


async def test_the_last_word_is_said_once(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked())
        await queue.claim(1)
        lost = JobFailure(kind="internal", message="it broke")
        words = [
            queue.finish(job.id, [picture()]),
            queue.end(job.id, CANCELLED),
            queue.end(job.id, Completion("failed", failure=lost)),
            queue.finish(job.id, [picture("other")]),
        ]
        heard = [ended for ended in await asyncio.gather(*words) if ended is not None]
        assert len(heard) == 1
        assert await queue.job(job.id) == heard[0]
        kept = {path.name for path in (queue.folder / "pictures").iterdir()}
        assert kept == {kept_picture.sha256 for kept_picture in heard[0].pictures}


async def test_priority_goes_first_then_the_oldest(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        for prompt, priority in [("low", -1), ("first", 0), ("high", 7), ("second", 0)]:
            await queue.submit(asked(prompt, priority=priority))
        positions = {job.request["prompt"]: job.position for job in await queue.jobs()}
        assert positions == {"high": 0, "first": 1, "second": 2, "low": 3}
        assert await served(queue) == ["high", "first", "second", "low"]


async def test_a_client_with_many_jobs_starves_nobody(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        for number in range(6):
            await queue.submit(asked(f"a{number}", client="ann"))
        await queue.submit(asked("b0", client="bob"))
        await queue.submit(asked("b1", client="bob"))
        assert await served(queue) == ["a0", "b0", "a1", "b1", "a2", "a3", "a4", "a5"]


async def test_one_who_asks_again_and_again_does_not_overtake(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        for number in range(10):
            await queue.submit(asked(f"a{number}", client="ann"))
        await queue.submit(asked("b0", client="bob"))
        order: Counter[str] = Counter()
        for turn in range(1, 11):
            (job,) = await queue.claim(1)
            order[job.client] += 1
            if job.client == "bob":
                await queue.submit(asked(f"b{turn}", client="bob"))
            assert abs(order["ann"] - order["bob"]) <= 1


async def test_large_jobs_use_up_more_of_a_clients_share(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        for number in range(3):
            await queue.submit(asked(f"large{number}", client="ann", cost=4))
        for number in range(6):
            await queue.submit(asked(f"small{number}", client="bob", cost=1))
        order = await served(queue)
        assert order[:6] == ["large0", "small0", "small1", "small2", "small3", "large1"]


async def test_who_was_away_has_saved_nothing_up(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        for number in range(8):
            await queue.submit(asked(f"a{number}", client="ann"))
        await queue.claim(6)
        for number in range(4):
            await queue.submit(asked(f"b{number}", client="bob"))
        assert await served(queue) == ["b0", "a6", "b1", "a7", "b2", "b3"]


async def test_withdrawn_jobs_cost_no_turns(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        withdrawn = [await queue.submit(asked(f"a{number}", client="ann")) for number in range(5)]
        for job in withdrawn:
            stopped, ended = await queue.request_cancel(job.id)
            assert (stopped.state, ended) == ("cancelled", True)
        await queue.submit(asked("b0", client="bob"))
        await queue.submit(asked("a-late", client="ann"))
        await queue.submit(asked("b1", client="bob"))
        assert await served(queue) == ["b0", "a-late", "b1"]


async def test_eight_claim_and_nothing_is_claimed_twice(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        jobs = await asyncio.gather(*(queue.submit(asked(client=f"c{n % 5}")) for n in range(200)))

        async def claimer() -> list[str]:
            claimed = []
            while got := await queue.claim(3):
                claimed += [job.id for job in got]
            return claimed

        claimed = [job_id for part in await asyncio.gather(*(claimer() for _ in range(8))) for job_id in part]
        assert sorted(claimed) == sorted(job.id for job in jobs)


async def test_both_lengths_are_bounded(open_queue: OpenQueue) -> None:
    async with open_queue(max_queued=4, max_queued_per_client=2) as queue:
        await queue.submit(asked(client="ann"))
        await queue.submit(asked(client="ann", idempotency_key="mine"))
        with pytest.raises(QueueFullError, match=r"2 jobs of 'ann' .* is 2") as refused:
            await queue.submit(asked(client="ann"))
        assert refused.value.retry_after_s > 0
        await queue.submit(asked(client="eve", max_queued=1))
        with pytest.raises(QueueFullError, match="the limit for one client is 1"):
            await queue.submit(asked(client="eve", max_queued=1))
        await queue.submit(asked(client="bob"))
        with pytest.raises(QueueFullError, match="4 jobs are waiting, the limit is 4"):
            await queue.submit(asked(client="cid"))
        # What is accepted already needs no room.
        assert (await queue.submit(asked(client="ann", idempotency_key="mine"))).idempotency_key == "mine"
        await queue.claim(1)
        await queue.submit(asked(client="cid"))


async def test_a_client_that_fills_the_queue_leaves_places_to_others(open_queue: OpenQueue) -> None:
    async def fill(client: str) -> int:
        tries = [queue.submit(asked(client=client)) for _ in range(50)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        refusals = [outcome for outcome in outcomes if isinstance(outcome, QueueFullError)]
        assert refusals
        assert all("more waiting jobs than places are free" in str(refusal) for refusal in refusals)
        return len(tries) - len(refusals)

    async with open_queue(max_queued=80) as queue:
        assert [await fill(client) for client in ("ann", "bob", "cid", "dee")] == [40, 20, 10, 5]
        # What becomes free goes to those with fewer jobs, however often the others try.
        for _ in range(8):
            await queue.claim(1)
            assert await fill("ann") == await fill("bob") == 0
        assert await fill("eve") > 0


async def test_without_keys_the_whole_queue_may_be_filled(open_queue: OpenQueue) -> None:
    async with open_queue(max_queued=20) as queue:
        for _ in range(20):
            await queue.submit(asked(client="local"))
        with pytest.raises(QueueFullError, match="20 jobs are waiting, the limit is 20"):
            await queue.submit(asked(client="local"))


async def test_retry_after_follows_the_pace(open_queue: OpenQueue, hands: Hands) -> None:
    async with open_queue() as queue:
        for _ in range(4):
            await queue.submit(asked())
        for job in await queue.claim(4):
            hands.pass_(12)
            await queue.finish(job.id, [])
        assert queue.retry_after_s() == pytest.approx(12)


async def test_an_idempotency_key_is_one_job(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        twice = [queue.submit(asked("an apple", idempotency_key="k")) for _ in range(2)]
        first, second = await asyncio.gather(*twice)
        assert first.id == second.id
        with pytest.raises(
            RequestError, match=f"'k' belongs to job {first.id}, which requests something else"
        ):
            await queue.submit(asked("a pear", idempotency_key="k"))
        other = await queue.submit(asked("a pear", client="bob", idempotency_key="k"))
        assert other.id != first.id
        await queue.claim(1)
        done = await queue.finish(first.id, [picture()])
        assert await queue.submit(asked("an apple", idempotency_key="k")) == done
        assert await queue.known(asked("an apple", idempotency_key="k")) == done
        assert await queue.known(asked("an apple", idempotency_key="new")) is None


async def test_a_running_job_is_cancelled_when_it_is_left(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked())
        await queue.claim(1)
        marked, ended = await queue.request_cancel(job.id)
        assert (marked.state, ended) == ("running", False)
        (left,) = await queue.requeue([job.id], lost=True)
        assert left.state == "cancelled"
        assert await queue.request_cancel(job.id) == (left, False)


async def test_deadlines_pass_for_waiting_and_running_jobs(open_queue: OpenQueue, hands: Hands) -> None:
    async with open_queue() as queue:
        running = await queue.submit(asked(deadline_s=5.0))
        await queue.claim(1)
        waiting = await queue.submit(asked(deadline_s=9.0))
        ended = await queue.submit(asked(deadline_s=5.0))
        await queue.request_cancel(ended.id)
        await queue.submit(asked())
        assert queue.seconds_to_deadline() == 5
        hands.pass_(4.9)
        assert await queue.fail_overdue() == []
        hands.pass_(0.1)
        (late,) = await queue.fail_overdue()
        assert late.id == running.id
        assert late.failure is not None
        assert late.failure.kind == "deadline"
        assert await queue.finish(running.id, [picture()]) is None
        hands.pass_(10)
        assert [job.id for job in await queue.fail_overdue()] == [waiting.id]
        assert queue.seconds_to_deadline() is None


async def test_a_repeated_request_does_not_move_its_deadline(open_queue: OpenQueue, hands: Hands) -> None:
    async with open_queue() as queue:
        await queue.submit(asked(deadline_s=10.0, idempotency_key="k"))
        hands.pass_(6)
        await queue.submit(asked(deadline_s=10.0, idempotency_key="k"))
        assert queue.seconds_to_deadline() == 4


async def test_a_repeated_request_brings_no_deadline_where_there_was_none(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        await queue.submit(asked(idempotency_key="k"))
        again = await queue.submit(asked(deadline_s=10.0, idempotency_key="k"))
        assert (again.deadline_at, queue.seconds_to_deadline()) == (None, None)


async def test_of_jobs_past_their_deadline_those_that_ended_are_told_of(
    open_queue: OpenQueue, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_queue() as queue:
        first, second = [await queue.submit(asked(deadline_s=1.0)) for _ in range(2)]
        hands.pass_(2)
        with monkeypatch.context() as full:
            full.setattr(queue, "end", _disk_full_after(1, queue.end))
            assert [job.id for job in await queue.fail_overdue()] == [first.id]
            with pytest.raises(UnavailableError):
                await queue.fail_overdue()
        assert [job.id for job in await queue.fail_overdue()] == [second.id]


def _disk_full_after(number: int, end: Callable[[str, Completion], Awaitable[Job | None]]) -> Any:
    left = iter(range(number))

    async def ended(job_id: str, how: Completion) -> Job | None:
        if next(left, None) is None:
            raise UnavailableError("disk full")
        return await end(job_id, how)

    return ended


async def test_a_job_has_ended_even_if_what_was_given_with_it_cannot_be_removed(
    open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise OSError(5, "Input/output error")

    async with open_queue() as queue:
        given = {"image": {"path": "a", "sha256": blob_name(b"given")}}
        new = asked()
        job = await queue.submit(replace(new, request={**new.request, **given}), [b"given"])
        await queue.claim(1)
        monkeypatch.setattr(queue._files, "remove", refuse)
        done = await queue.finish(job.id, [picture()])
        assert done is not None
        assert done.state == "done"
        assert "stay until the next start" in caplog.text


async def test_a_job_that_is_deleted_as_it_ends_is_gone(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked())
        await asyncio.gather(queue.end(job.id, OVERDUE), queue.delete(job.id))
        with pytest.raises(NotFoundError):
            await queue.job(job.id)


async def test_who_comes_after_the_end_is_told_so(open_queue: OpenQueue) -> None:
    queue = open_queue()
    await queue.close()
    async with asyncio.timeout(20):
        with pytest.raises(UnavailableError, match="has stopped"):
            await queue.jobs()


@pytest.mark.parametrize(("jump", "left"), [(+100_000, 60.0), (-100_000, 60.0)])
async def test_a_jumping_clock_moves_no_deadline(
    open_queue: OpenQueue, hands: Hands, jump: float, left: float
) -> None:
    async with open_queue() as queue:
        await queue.submit(asked(deadline_s=60.0))
        hands.wall += jump
        assert queue.seconds_to_deadline() == left
        assert await queue.fail_overdue() == []


@pytest.mark.parametrize(("away", "left"), [(20, 40.0), (1e6, 0.0), (-1e6, 60.0)])
async def test_over_a_restart_a_deadline_is_never_longer_than_asked(
    open_queue: OpenQueue, hands: Hands, away: float, left: float
) -> None:
    async with open_queue() as queue:
        await queue.submit(asked(deadline_s=60.0))
    hands.wall += away
    hands.monotonic = 1.0
    async with open_queue() as queue:
        assert queue.seconds_to_deadline() == left


async def test_a_jumping_clock_changes_no_order(open_queue: OpenQueue, hands: Hands) -> None:
    async with open_queue() as queue:
        for prompt, jump in [("one", -5000), ("two", 90_000), ("three", -200_000)]:
            await queue.submit(asked(prompt))
            hands.wall += jump
        assert [job.request["prompt"] for job in await queue.jobs()] == ["three", "two", "one"]
        assert await served(queue) == ["one", "two", "three"]


async def test_a_listing_comes_in_pages(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        ids = [(await queue.submit(asked(client="ann" if n % 3 else "bob"))).id for n in range(9)]
        await queue.request_cancel(ids[4])
        seen: list[str] = []
        while page := await queue.jobs(limit=2, before=seen[-1] if seen else None):
            seen += [job.id for job in page]
        assert seen == ids[::-1]
        assert [job.id for job in await queue.jobs(client="bob")] == [ids[6], ids[3], ids[0]]
        assert [job.id for job in await queue.jobs(client="ann", state="cancelled")] == [ids[4]]
        with pytest.raises(NotFoundError):
            await queue.jobs(client="bob", before=ids[4])
        with pytest.raises(RequestError, match="0 is out of range"):
            await queue.jobs(limit=0)


async def test_pages_go_on_behind_a_job_that_was_deleted(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        ids = [(await queue.submit(asked(client="ann" if n % 2 else "bob"))).id for n in range(6)]
        for each in ids:
            await queue.request_cancel(each)
        page = await queue.jobs(client="ann", limit=2)
        for job in page:
            await queue.delete(job.id)
        assert [job.id for job in await queue.jobs(client="ann", before=cursor_after(page))] == [ids[1]]


async def test_others_jobs_are_not_there(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        job = await queue.submit(asked(client="ann"))
        for attempt in (
            queue.job(job.id, "bob"),
            queue.request_cancel(job.id, "bob"),
            queue.delete(job.id, "bob"),
        ):
            with pytest.raises(NotFoundError, match=job.id):
                await attempt
        assert (await queue.job(job.id, "ann")).state == "queued"


async def test_deleting_needs_an_end_and_spares_shared_pictures(open_queue: OpenQueue) -> None:
    async with open_queue() as queue:
        first, second = [await queue.submit(asked()) for _ in range(2)]
        with pytest.raises(RequestError, match="only ended jobs can be deleted"):
            await queue.delete(first.id)
        for job in await queue.claim(2):
            await queue.finish(job.id, [picture("the same")])
        await queue.delete(first.id)
        assert await queue.picture(second.id, 0) == b"the same"
        await queue.delete(second.id)
        assert list((queue.folder / "pictures").iterdir()) == []
        with pytest.raises(NotFoundError):
            await queue.job(second.id)


async def ended_jobs(queue: JobQueue, hands: Hands, sizes: list[int]) -> list[str]:
    ids = []
    for number, size in enumerate(sizes):
        job = await queue.submit(asked(f"p{number}"))
        await queue.claim(1)
        hands.pass_(10)
        await queue.finish(job.id, [picture(str(number) * size)])
        ids.append(job.id)
    return ids


async def test_old_jobs_are_forgotten(open_queue: OpenQueue, hands: Hands) -> None:
    async with open_queue(max_age_s=25.0) as queue:
        waiting = await queue.submit(asked("waiting", priority=-5))
        ids = await ended_jobs(queue, hands, [1, 1, 1, 1])
        await queue.delete_expired()
        assert [job.id for job in await queue.jobs()] == [*ids[:0:-1], waiting.id]
        assert len(list((queue.folder / "pictures").iterdir())) == 3
        hands.pass_(1000)
        await queue.delete_expired()
        assert [job.id for job in await queue.jobs()] == [waiting.id]


async def test_the_first_to_end_makes_room(open_queue: OpenQueue, hands: Hands) -> None:
    async with open_queue(max_bytes=100) as queue:
        ids = await ended_jobs(queue, hands, [40, 40, 50])
        hands.wall -= 10_000
        ids += await ended_jobs(queue, hands, [40])
        await queue.delete_expired()
        assert [job.id for job in await queue.jobs()] == [ids[3], ids[2]]
        assert await queue.picture(ids[2], 0) == b"2" * 50
        assert sum(path.stat().st_size for path in (queue.folder / "pictures").iterdir()) == 90


async def test_a_long_history_is_forgotten_to_its_end(
    open_queue: OpenQueue, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_DELETED", 2)
    async with open_queue(max_bytes=10, max_age_s=45.0) as queue:
        ids = await ended_jobs(queue, hands, [1, 1, 1, 4, 4, 4, 4])
        await queue.delete_expired()
        assert [job.id for job in await queue.jobs()] == [ids[6], ids[5]]


async def test_given_pictures_stay_until_the_end(open_queue: OpenQueue, tmp_path: Path) -> None:
    from calotype.serve.queue.blob_store import blob_name
    from calotype.serve.queue.repository.enqueue import NewJob

    def with_image(data: bytes) -> NewJob:
        image = {"path": "(in memory)", "sha256": blob_name(data)}
        return NewJob(client="ann", model="emoji", request={"prompt": "p", "image": image, "mask": None})

    async with open_queue() as queue:
        jobs = [await queue.submit(with_image(data), [data]) for data in (b"cat", b"cat", b"dog")]
    async with open_queue() as queue:
        claimed = await queue.claim(3)
        assert [await queue.given(job) for job in claimed] == [
            {"image": b"cat"},
            {"image": b"cat"},
            {"image": b"dog"},
        ]
        await queue.finish(jobs[0].id, [], request={"prompt": "p", "image": {"sha256": "0" * 64}})
        assert (await queue.job(jobs[0].id)).request["image"]["sha256"] == blob_name(b"cat")
        assert await queue.given(jobs[1]) == {"image": b"cat"}
        await queue.end(jobs[1].id, CANCELLED)
        await queue.requeue([jobs[2].id], lost=False)
        await queue.request_cancel(jobs[2].id)
        assert list((queue.folder / "pictures").iterdir()) == []


async def test_jobs_without_pictures_are_not_remembered_without_end(open_queue: OpenQueue) -> None:
    async with open_queue(max_record_bytes=2**20) as queue:
        for number in range(100):
            job = await queue.submit(asked(f"{number} {'x' * 20_000}"))
            await queue.request_cancel(job.id)
        waiting = await queue.submit(asked("the one that waits"))
        await queue.delete_expired()
        kept = [job.request["prompt"].split()[0] for job in await queue.jobs(state="cancelled")]
        assert kept == [str(number) for number in range(99, 99 - len(kept), -1)]
        assert 20 <= len(kept) < 100
        assert (await queue.job(waiting.id)).state == "queued"
        await queue.delete_expired()
        assert len(await queue.jobs(state="cancelled")) == len(kept)
