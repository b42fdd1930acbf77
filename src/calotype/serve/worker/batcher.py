"""Many jobs on one device: what happens between two evaluations, and who shares the next.

A turn opens requests that arrived, decodes pictures that are done and evaluates one group of runs together.
Nobody waits for company: whoever is there shares the next evaluation, and who comes later joins the one
after; unless fewer at a time are done no later for it (`sharing.py`). A free row goes to the job with the
fewest pictures under way, the earliest of those; so jobs begin in the order they came, and one that asks for
many pictures does not keep others out.

A job fails alone. A shared evaluation that fails is repeated in halves, which leaves the culprit by itself;
one that does not fit into memory too, and its rows are not tried again. Knows nothing of sockets or torch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from calotype.core.errors import CalotypeError, DoesNotFitError
from calotype.serve.ipc.messages import Evaluated, Failed, Load, ModelFailed, Stepped, Stopped, Work
from calotype.serve.worker.batch_policy import BatchPolicy
from calotype.serve.worker.group_scheduler import Group, GroupScheduler
from calotype.serve.worker.image_encoder import Emit, ImageEncoder
from calotype.serve.worker.job_state import ActiveJob
from calotype.serve.worker.model_cache import Lease, ModelCache
from calotype.serve.worker.progress_stages import Stages
from calotype.serve.worker.protocols import ImageRun, JobEngine, OutOfMemoryError, failure_of
from calotype.serve.worker.row_limits import RowLimits, bucket
from calotype.serve.worker.start_images import StartImages

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Share:
    """One run's part in an evaluation."""

    ticket: ActiveJob
    index: int

    @property
    def run(self) -> ImageRun:
        return self.ticket.runs[self.index]


class Batcher:
    """The jobs of one worker. For one thread; `emit` sends what the server is to know."""

    def __init__(
        self,
        models: ModelCache,
        emit: Emit,
        finishing: ImageEncoder,
        *,
        most_rows: int,
        stages: Stages,
    ) -> None:
        self._models, self._emit, self._finishing, self._stages = models, emit, finishing, stages
        self._limits, self._sharing = RowLimits(most_rows), BatchPolicy()
        self._turns = GroupScheduler()
        self._waiting: deque[tuple[Work | Load, Sequence[bytes]]] = deque()
        self._tickets: dict[str, ActiveJob] = {}
        self._start_images = StartImages()
        self._preparing: deque[tuple[ActiveJob, Iterator[None]]] = deque()
        """Jobs with long texts, whose pictures cannot begin yet; the first has the next slice."""
        self._undecoded: deque[tuple[ActiveJob, int, ImageRun]] = deque()
        self._evaluation_s = 0.0

    def add(self, wanted: Work | Load, attachments: Sequence[bytes] = ()) -> None:
        """Take on a job, or a model that is to be ready; in the order of arrival."""
        if isinstance(wanted, Work) and self._has(wanted.job_id):
            _log.error("job came twice, the second is left out", extra={"job_id": wanted.job_id})
            return
        self._waiting.append((wanted, attachments))

    def _has(self, job_id: str) -> bool:
        return job_id in self._start_images or job_id in self._tickets or self._waits(job_id) is not None

    def stop(self, job_id: str) -> None:
        """Leave a job. One that has ended, or only waits for its files to be written, stays as it is."""
        place = self._waits(job_id)
        if place:
            self._waiting.remove(place)
            self._emit(Stopped(job_id=job_id), ())
            return
        if job_id in self._start_images:
            self._start_images.stop(job_id)
            self._emit(Stopped(job_id=job_id), ())
            return
        ticket = self._tickets.get(job_id)
        if ticket is not None:
            self._end(ticket)
            self._emit(Stopped(job_id=job_id), ())
            _log.info("job stopped", extra={"job_id": job_id})

    def set_watched(self, job_id: str, previews: bool) -> None:
        """Make previews for a job, or stop making them."""
        place = self._waits(job_id)
        if place:
            changed = place[0].model_copy(update={"previews": previews})
            self._waiting[self._waiting.index(place)] = (changed, place[1])
        if job_id in self._start_images:
            self._start_images.watch(job_id, previews)
        if job_id in self._tickets:
            self._tickets[job_id].previews = previews

    def _waits(self, job_id: str) -> tuple[Work | Load, Sequence[bytes]] | None:
        """A job's place among those that are not open yet."""
        return next((place for place in self._waiting if getattr(place[0], "job_id", None) == job_id), None)

    def step(self, *, opens: bool = True) -> bool:
        """Everything up to the end of one evaluation; False when there was nothing to do.

        Without `opens` what has arrived waits: somebody else needs the room that it would take.
        """
        self._models.evict_unused()
        busy = bool(self._waiting or self._tickets or self._start_images)
        while opens and self._waiting and self._open(*self._waiting[0]):
            self._waiting.popleft()
        for read in self._start_images.take_done(idle=not self._tickets):
            self._begin_job(read.work, read.lease, read.given.result)
        self._decode()
        self._prepare()
        groups: dict[Group, list[ActiveJob]] = {}
        preparing = {ticket.job_id for ticket, _ in self._preparing}
        for ticket in self._tickets.values():
            if ticket.job_id in preparing:
                continue
            if ticket.runs or ticket.has_more:
                groups.setdefault(ticket.group, []).append(ticket)
        if groups:
            group = self._turns.next(groups.keys())
            self._evaluate(group, self._gather(group, groups[group]))
        return busy

    def _open(self, wanted: Work | Load, attachments: Sequence[bytes]) -> bool:
        """Begin with what arrived; False if it has to wait, and what came after it too: for its model."""
        try:
            if isinstance(wanted, Load):
                return self._models.load(wanted.model)
            lease = self._models.lease(wanted.model, wanted.preset)
            if lease is None:
                return False
        except Exception as error:
            self._refuse(wanted, error)
            return True
        if attachments:
            # A large image takes long to decode: the others' evaluations go on meanwhile.
            self._start_images.add(wanted, lease, attachments)
        else:
            self._begin_job(wanted, lease, partial(lease.engine.read, wanted, ()))
        return True

    def _begin_job(self, wanted: Work, lease: Lease, given: Callable[[], Any]) -> None:
        try:
            order = lease.engine.prepare(wanted, given())
        except Exception as error:
            lease.release()
            self._refuse(wanted, error)
        else:
            ticket = ActiveJob(wanted, lease, order, wanted.previews)
            self._tickets[wanted.job_id] = ticket
            preparation = order.preparation()
            if preparation is not None:
                self._preparing.append((ticket, preparation))
            _log.info("job begins", extra={"job_id": wanted.job_id, "model": lease.model})

    def _refuse(self, wanted: Work | Load, error: Exception) -> None:
        if isinstance(wanted, Load):
            _log.warning("model failed: %s", error, extra={"model": wanted.model})
            self._emit(ModelFailed(model=wanted.model, failure=failure_of(error)), ())
        else:
            self._tell_failed(wanted.job_id, error)

    def _prepare(self) -> None:
        """One slice of one job's long text: the others' evaluations go on in between."""
        if not self._preparing:
            return
        ticket, preparation = self._preparing.popleft()
        try:
            with self._first(ticket, "reading of a long prompt"):
                next(preparation)
        except StopIteration:
            return
        except OutOfMemoryError:
            # What was kept to be faster is given back; then the text is read in one go, or does not fit.
            self._models.release_memory()
        except Exception as error:
            self._fail(ticket, error)
        else:
            self._preparing.append((ticket, preparation))

    def _gather(self, group: Group, tickets: Sequence[ActiveJob]) -> list[_Share]:
        """Who shares the next evaluation of a group: what is under way first, then what can begin.

        Where not all who could are to share it, jobs with the least left to do come first: one that takes
        long would otherwise keep others waiting for all of it. But not for ever, while new ones come.
        """
        expected = min((t.order.most_rows for t in tickets if t.order.most_rows is not None), default=None)
        shape = group.measured
        limit = self._limits.of(shape, expected)
        wanted = sum(ticket.rows_wanted for ticket in tickets)
        most = _evaluated(tickets[0].lease.engine, min(wanted, limit), limit)
        enough = self._sharing.rows(shape, wanted, most)
        candidates = self._candidates(tickets) if enough == most else _shortest_first(tickets)
        limit = min(limit, enough)
        shares: list[_Share] = []
        rows = 0
        for share in candidates:
            needed = share.ticket.order.rows
            if shares and rows + needed > limit:
                break
            if share.index in share.ticket.runs or self._begin(share.ticket):
                shares.append(share)
                rows += needed
        chosen = {share.ticket.job_id for share in shares}
        for ticket in tickets:
            ticket.passed_over += ticket.job_id not in chosen
        return shares

    def _candidates(self, tickets: Sequence[ActiveJob]) -> Iterator[_Share]:
        yield from [_Share(ticket, index) for ticket in tickets for index in ticket.runs]
        while more := [ticket for ticket in tickets if ticket.has_more and not ticket.ended]:
            ticket = min(more, key=lambda ticket: len(ticket.runs))
            yield _Share(ticket, ticket.begun)

    def _begin(self, ticket: ActiveJob) -> bool:
        try:
            with self._first(ticket, "beginning"):
                self._with_room(ticket.begin_next)
        except Exception as error:
            self._fail(ticket, error)
            return False
        return True

    def _evaluate(self, group: Group, shares: Sequence[_Share]) -> None:
        """One evaluation, or several smaller ones when it cannot be one."""
        shape = group.measured
        pending = [shares]
        while pending:
            some = [share for share in pending.pop() if not share.ticket.ended]
            middle = (len(some) + 1) // 2
            halves = [some[middle:], some[:middle]]
            if len(some) > 1 and _rows(some) > self._limits.of(shape):
                pending += halves
                continue
            error = self._try(shape, some) if some else None
            if len(some) == 1 and isinstance(error, OutOfMemoryError):
                # Its device has more room now: what was kept there only to be faster has been let go.
                error = self._try(shape, some)
            if error is None:
                continue
            out_of_memory = isinstance(error, OutOfMemoryError)
            if len(some) == 1:
                self._fail(some[0].ticket, _too_large(error) if out_of_memory else error)
                continue
            if out_of_memory:
                self._limits.learn(shape, _rows(some), _rows(some[:middle]))
            else:
                _log.warning("an evaluation for %d pictures failed, looking for whose: %s", len(some), error)
            pending += halves

    def _try(self, shape: Hashable, shares: Sequence[_Share]) -> Exception | None:
        """Evaluate; what went wrong instead, if something did."""
        engine = shares[0].ticket.lease.engine
        rows = _rows(shares)
        least_rows = max(rows, _evaluated(engine, rows, self._limits.of(shape)))
        first = self._first(shares[0].ticket, f"evaluation of {least_rows} rows")
        try:
            with first:
                answers = engine.evaluate(
                    [share.run for share in shares], least_rows=least_rows, about=(shape, least_rows)
                )
        except Exception as error:
            if isinstance(error, OutOfMemoryError):
                self._models.release_memory()
            return error
        self._evaluation_s = engine.evaluation_s
        if engine.evaluation_about is not None:
            self._sharing.learn(*engine.evaluation_about, self._evaluation_s)
        jobs = len({share.ticket.job_id for share in shares})
        steps = self._hand_out(shares, answers)
        self._emit(Evaluated(rows=rows, jobs=jobs, seconds=self._evaluation_s, steps=steps), ())
        return None

    def _hand_out(self, shares: Sequence[_Share], answers: Sequence[Any]) -> dict[str, tuple[int, int]]:
        """Answers with steps done and in all of those jobs whose step is not told yet."""
        stepped: dict[str, _Share] = {}
        for share, answer in zip(shares, answers, strict=True):
            ticket = share.ticket
            if ticket.ended:
                continue
            try:
                completed = share.run.send(answer)
            except Exception as error:
                self._fail(ticket, error)
                continue
            if completed:
                stepped.setdefault(ticket.job_id, share)
        going_on = [share for share in stepped.values() if not share.ticket.ended]
        untold = {
            share.ticket.job_id: (share.ticket.steps_done, share.ticket.steps_total)
            for share in going_on
            if not self._showed(share)
        }
        for share in shares:
            if not share.ticket.ended and share.run.done:
                self._undecoded.append((share.ticket, share.index, share.ticket.leave(share.index)))
        return untold

    def _showed(self, share: _Share) -> bool:
        """Tell of a step with a preview, if it is time for one."""
        ticket = share.ticket
        try:
            preview = ticket.preview(share.run)
        except Exception:
            _log.exception("no preview", extra={"job_id": ticket.job_id})
            return False
        if preview is None:
            return False
        news = Stepped(
            job_id=ticket.job_id,
            steps_done=ticket.steps_done,
            steps_total=ticket.steps_total,
            has_preview=True,
        )
        self._emit(news, (preview,))
        return True

    def _decode(self) -> None:
        """Decode one picture, and then more for about as long as an evaluation takes.

        So the others sample at half their speed at worst, and many that are done together do not wait for
        an evaluation each.
        """
        spent_s = 0.0
        while self._undecoded:
            ticket, index, run = self._undecoded.popleft()
            self._finish(ticket, index, run)
            spent_s += ticket.lease.engine.decode_s
            if spent_s >= self._evaluation_s:
                return

    def _finish(self, ticket: ActiveJob, index: int, run: ImageRun) -> None:
        try:
            with self._first(ticket, "decoding"):
                encode = self._with_room(lambda: ticket.order.finish(index, run))
        except Exception as error:
            self._fail(ticket, error)
            return
        ticket.files[index] = self._finishing.encode(encode)
        seeds = ticket.order.seeds
        if len(ticket.files) == len(seeds):
            self._end(ticket)
            files = [ticket.files[place] for place in range(len(seeds))]
            self._finishing.complete(ticket.job_id, ticket.order.request, seeds, files)

    def _first(self, ticket: ActiveJob, what: str) -> AbstractContextManager[None]:
        lease = ticket.lease
        model = lease.model if lease.preset is None else f"{lease.model} with {lease.preset}"
        return self._stages.first(what, model, ticket.order.shape)

    def _with_room(self, work: Callable[[], Any]) -> Any:
        """Do something for one picture; again with all the memory there is if it did not fit at first."""
        try:
            return work()
        except OutOfMemoryError:
            self._models.release_memory()
        try:
            return work()
        except OutOfMemoryError as error:
            raise _too_large(error) from error

    def _fail(self, ticket: ActiveJob, error: Exception) -> None:
        self._end(ticket)
        self._tell_failed(ticket.job_id, error)

    def _tell_failed(self, job_id: str, error: Exception) -> None:
        failure = failure_of(error)
        unexpected = error if not isinstance(error, CalotypeError) else None
        _log.warning(
            "job failed: %s",
            error,
            extra={"job_id": job_id, "kind": failure.kind},
            exc_info=unexpected,
        )
        self._emit(Failed(job_id=job_id, failure=failure), ())

    def _end(self, ticket: ActiveJob) -> None:
        ticket.ended = True
        ticket.runs.clear()
        # They would keep the engine past its lease, and what it has on the device.
        self._preparing = deque(place for place in self._preparing if place[0] is not ticket)
        self._undecoded = deque(place for place in self._undecoded if place[0] is not ticket)
        del self._tickets[ticket.job_id]
        ticket.lease.release()


def _shortest_first(tickets: Sequence[ActiveJob]) -> Iterator[_Share]:
    waited = [ticket for ticket in tickets if ticket.has_waited]
    others = [ticket for ticket in tickets if not ticket.has_waited]
    for ticket in [*waited, *sorted(others, key=lambda ticket: ticket.steps_left)]:
        yield from [_Share(ticket, index) for index in ticket.runs]
        while ticket.has_more and not ticket.ended:
            yield _Share(ticket, ticket.begun)


def _evaluated(engine: JobEngine, rows: int, limit: int) -> int:
    """How many rows an evaluation for so many has.

    A row for nobody costs less than a number of rows that was never evaluated, where those cost.
    """
    return min(bucket(rows), limit) if engine.shapes_cost else rows


def _rows(shares: Sequence[_Share]) -> int:
    return sum(share.ticket.order.rows for share in shares)


def _too_large(error: Exception) -> DoesNotFitError:
    return DoesNotFitError(
        f"one picture alone ran out of memory: {error}; ask for a smaller one, or decode in tiles (tile_vae)"
    )
