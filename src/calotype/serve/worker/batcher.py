"""Continuous batching: runs many jobs on one device, and chooses before each evaluation which runs share it.

A step admits jobs that arrived, decodes finished images and evaluates one group of runs as a batch. No job
waits for a fuller batch: available runs share the next evaluation, and later ones join the one after, unless
a smaller batch delays no job (`batch_policy.py`). A free row goes to the job with the fewest active images,
among these to the earliest. So jobs start in order of arrival, and a job with many images does not block
others.

A job fails alone. If a shared evaluation fails or runs out of memory, the batcher repeats it in halves, which
isolates the faulty job. After an out-of-memory error it also lowers the row limit (`row_limits.py`).
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
class _BatchItem:
    """One run of a batch."""

    job: ActiveJob
    index: int

    @property
    def run(self) -> ImageRun:
        return self.job.runs[self.index]


class Batcher:
    """The jobs of one worker. Not thread-safe; `emit` sends messages to the server."""

    def __init__(
        self,
        models: ModelCache,
        emit: Emit,
        finishing: ImageEncoder,
        *,
        most_rows: int,
        stages: Stages,
    ) -> None:
        self._models, self._emit, self._encoder, self._stages = models, emit, finishing, stages
        self._limits, self._policy = RowLimits(most_rows), BatchPolicy()
        self._scheduler = GroupScheduler()
        self._waiting: deque[tuple[Work | Load, Sequence[bytes]]] = deque()
        self._jobs: dict[str, ActiveJob] = {}
        self._start_images = StartImages()
        self._preparing: deque[tuple[ActiveJob, Iterator[None]]] = deque()
        """Jobs with long prompts whose images cannot begin yet; the first gets the next slice."""
        self._undecoded: deque[tuple[ActiveJob, int, ImageRun]] = deque()
        self._evaluation_s = 0.0

    def add(self, wanted: Work | Load, attachments: Sequence[bytes] = ()) -> None:
        """Queue a job, or a model to load, in order of arrival."""
        if isinstance(wanted, Work) and self._has(wanted.job_id):
            _log.error("duplicate job, ignored", extra={"job_id": wanted.job_id})
            return
        self._waiting.append((wanted, attachments))

    def _has(self, job_id: str) -> bool:
        return job_id in self._start_images or job_id in self._jobs or self._queued_entry(job_id) is not None

    def stop(self, job_id: str) -> None:
        """Stop a job. A job that has ended, or only waits for its files to be encoded, is unaffected."""
        entry = self._queued_entry(job_id)
        if entry:
            self._waiting.remove(entry)
            self._emit(Stopped(job_id=job_id), ())
            return
        if job_id in self._start_images:
            self._start_images.stop(job_id)
            self._emit(Stopped(job_id=job_id), ())
            return
        job = self._jobs.get(job_id)
        if job is not None:
            self._end(job)
            self._emit(Stopped(job_id=job_id), ())
            _log.info("job stopped", extra={"job_id": job_id})

    def set_watched(self, job_id: str, previews: bool) -> None:
        """Turn previews of a job on or off."""
        entry = self._queued_entry(job_id)
        if entry:
            changed = entry[0].model_copy(update={"previews": previews})
            self._waiting[self._waiting.index(entry)] = (changed, entry[1])
        if job_id in self._start_images:
            self._start_images.watch(job_id, previews)
        if job_id in self._jobs:
            self._jobs[job_id].previews = previews

    def _queued_entry(self, job_id: str) -> tuple[Work | Load, Sequence[bytes]] | None:
        """Return the queue entry of a job that is not admitted yet."""
        return next((entry for entry in self._waiting if getattr(entry[0], "job_id", None) == job_id), None)

    def step(self, *, opens: bool = True) -> bool:
        """Do all work up to the end of one evaluation; return False if there was none.

        Without `opens` it admits no queued job, because a workflow needs the memory.
        """
        self._models.evict_unused()
        has_work = bool(self._waiting or self._jobs or self._start_images)
        while opens and self._waiting and self._open(*self._waiting[0]):
            self._waiting.popleft()
        for reading in self._start_images.take_done(idle=not self._jobs):
            self._begin_job(reading.work, reading.lease, reading.given.result)
        self._decode()
        self._prepare()
        groups: dict[Group, list[ActiveJob]] = {}
        preparing = {job.job_id for job, _ in self._preparing}
        for job in self._jobs.values():
            if job.job_id in preparing:
                continue
            if job.runs or job.has_more:
                groups.setdefault(job.group, []).append(job)
        if groups:
            group = self._scheduler.next(groups.keys())
            self._evaluate(group, self._gather(group, groups[group]))
        return has_work

    def _open(self, wanted: Work | Load, attachments: Sequence[bytes]) -> bool:
        """Admit a job or load a model; False if it, and all behind it, must wait for memory for its model."""
        try:
            if isinstance(wanted, Load):
                return self._models.load(wanted.model)
            lease = self._models.lease(wanted.model, wanted.preset)
            if lease is None:
                return False
        except Exception as error:
            self._reject(wanted, error)
            return True
        if attachments:
            # Decode in a thread: a large image takes long, and other jobs continue meanwhile.
            self._start_images.add(wanted, lease, attachments)
        else:
            self._begin_job(wanted, lease, partial(lease.engine.read, wanted, ()))
        return True

    def _begin_job(self, wanted: Work, lease: Lease, given: Callable[[], Any]) -> None:
        try:
            order = lease.engine.prepare(wanted, given())
        except Exception as error:
            lease.release()
            self._reject(wanted, error)
        else:
            job = ActiveJob(wanted, lease, order, wanted.previews)
            self._jobs[wanted.job_id] = job
            preparation = order.preparation()
            if preparation is not None:
                self._preparing.append((job, preparation))
            _log.info("job begins", extra={"job_id": wanted.job_id, "model": lease.model})

    def _reject(self, wanted: Work | Load, error: Exception) -> None:
        if isinstance(wanted, Load):
            _log.warning("model failed: %s", error, extra={"model": wanted.model})
            self._emit(ModelFailed(model=wanted.model, failure=failure_of(error)), ())
        else:
            self._report_failure(wanted.job_id, error)

    def _prepare(self) -> None:
        """Encode one slice of one job's long prompt; evaluations of other jobs run in between."""
        if not self._preparing:
            return
        job, preparation = self._preparing.popleft()
        try:
            with self._first(job, "encoding of a long prompt"):
                next(preparation)
        except StopIteration:
            return
        except OutOfMemoryError:
            # Release caches; `begin` then encodes the whole prompt at once, or fails.
            self._models.release_memory()
        except Exception as error:
            self._fail(job, error)
        else:
            self._preparing.append((job, preparation))

    def _gather(self, group: Group, jobs: Sequence[ActiveJob]) -> list[_BatchItem]:
        """Choose the runs of a group's next evaluation: active images first, then new ones.

        If the batch policy chooses fewer rows than possible, jobs with the fewest remaining steps come first:
        a long job would otherwise delay all others. A job that was passed over long enough comes before them.
        """
        expected = min((t.order.most_rows for t in jobs if t.order.most_rows is not None), default=None)
        shape = group.measured
        limit = self._limits.of(shape, expected)
        wanted = sum(job.rows_wanted for job in jobs)
        most = _padded_rows(jobs[0].lease.engine, min(wanted, limit), limit)
        enough = self._policy.rows(shape, wanted, most)
        candidates = self._candidates(jobs) if enough == most else _shortest_first(jobs)
        limit = min(limit, enough)
        items: list[_BatchItem] = []
        rows = 0
        for item in candidates:
            needed = item.job.order.rows
            if items and rows + needed > limit:
                break
            if item.index in item.job.runs or self._begin(item.job):
                items.append(item)
                rows += needed
        chosen = {item.job.job_id for item in items}
        for job in jobs:
            job.passed_over += job.job_id not in chosen
        return items

    def _candidates(self, jobs: Sequence[ActiveJob]) -> Iterator[_BatchItem]:
        yield from [_BatchItem(job, index) for job in jobs for index in job.runs]
        while more := [job for job in jobs if job.has_more and not job.ended]:
            job = min(more, key=lambda job: len(job.runs))
            yield _BatchItem(job, job.begun)

    def _begin(self, job: ActiveJob) -> bool:
        try:
            with self._first(job, "beginning"):
                self._retry_on_oom(job.begin_next)
        except Exception as error:
            self._fail(job, error)
            return False
        return True

    def _evaluate(self, group: Group, items: Sequence[_BatchItem]) -> None:
        """Evaluate the runs as one batch, or as several smaller ones if that fails."""
        shape = group.measured
        pending = [items]
        while pending:
            batch = [item for item in pending.pop() if not item.job.ended]
            middle = (len(batch) + 1) // 2
            halves = [batch[middle:], batch[:middle]]
            if len(batch) > 1 and _rows(batch) > self._limits.of(shape):
                pending += halves
                continue
            error = self._try(shape, batch) if batch else None
            if len(batch) == 1 and isinstance(error, OutOfMemoryError):
                # The device has more free memory now, because `_try` has released caches.
                error = self._try(shape, batch)
            if error is None:
                continue
            out_of_memory = isinstance(error, OutOfMemoryError)
            if len(batch) == 1:
                self._fail(batch[0].job, _too_large(error) if out_of_memory else error)
                continue
            if out_of_memory:
                self._limits.learn(shape, _rows(batch), _rows(batch[:middle]))
            else:
                _log.warning(
                    "an evaluation of %d images failed, repeating it in halves: %s", len(batch), error
                )
            pending += halves

    def _try(self, shape: Hashable, items: Sequence[_BatchItem]) -> Exception | None:
        """Evaluate a batch; return the error instead of raising it."""
        engine = items[0].job.lease.engine
        rows = _rows(items)
        least_rows = max(rows, _padded_rows(engine, rows, self._limits.of(shape)))
        first = self._first(items[0].job, f"evaluation of {least_rows} rows")
        try:
            with first:
                results = engine.evaluate(
                    [item.run for item in items], least_rows=least_rows, about=(shape, least_rows)
                )
        except Exception as error:
            if isinstance(error, OutOfMemoryError):
                self._models.release_memory()
            return error
        self._evaluation_s = engine.evaluation_s
        if engine.evaluation_about is not None:
            self._policy.learn(*engine.evaluation_about, self._evaluation_s)
        jobs = len({item.job.job_id for item in items})
        steps = self._send_results(items, results)
        self._emit(Evaluated(rows=rows, jobs=jobs, seconds=self._evaluation_s, steps=steps), ())
        return None

    def _send_results(
        self, items: Sequence[_BatchItem], results: Sequence[Any]
    ) -> dict[str, tuple[int, int]]:
        """Send each run its result; return steps done and total of jobs with an unreported step."""
        stepped: dict[str, _BatchItem] = {}
        for item, result in zip(items, results, strict=True):
            job = item.job
            if job.ended:
                continue
            try:
                completed = item.run.send(result)
            except Exception as error:
                self._fail(job, error)
                continue
            if completed:
                stepped.setdefault(job.job_id, item)
        continuing = [item for item in stepped.values() if not item.job.ended]
        unreported = {
            item.job.job_id: (item.job.steps_done, item.job.steps_total)
            for item in continuing
            if not self._sent_preview(item)
        }
        for item in items:
            if not item.job.ended and item.run.done:
                self._undecoded.append((item.job, item.index, item.job.leave(item.index)))
        return unreported

    def _sent_preview(self, item: _BatchItem) -> bool:
        """Report a step with a preview, if one is due."""
        job = item.job
        try:
            preview = job.preview(item.run)
        except Exception:
            _log.exception("making a preview failed", extra={"job_id": job.job_id})
            return False
        if preview is None:
            return False
        message = Stepped(
            job_id=job.job_id,
            steps_done=job.steps_done,
            steps_total=job.steps_total,
            has_preview=True,
        )
        self._emit(message, (preview,))
        return True

    def _decode(self) -> None:
        """Decode one image, then more for about as long as an evaluation takes.

        Sampling slows down to half its speed at worst, and many images that finish together do not each wait
        for an evaluation.
        """
        spent_s = 0.0
        while self._undecoded:
            job, index, run = self._undecoded.popleft()
            self._finish(job, index, run)
            spent_s += job.lease.engine.decode_s
            if spent_s >= self._evaluation_s:
                return

    def _finish(self, job: ActiveJob, index: int, run: ImageRun) -> None:
        try:
            with self._first(job, "decoding"):
                encode = self._retry_on_oom(lambda: job.order.finish(index, run))
        except Exception as error:
            self._fail(job, error)
            return
        job.files[index] = self._encoder.encode(encode)
        seeds = job.order.seeds
        if len(job.files) == len(seeds):
            self._end(job)
            files = [job.files[index] for index in range(len(seeds))]
            self._encoder.complete(job.job_id, job.order.request, seeds, files)

    def _first(self, job: ActiveJob, what: str) -> AbstractContextManager[None]:
        lease = job.lease
        model = lease.model if lease.preset is None else f"{lease.model} with {lease.preset}"
        return self._stages.first(what, model, job.order.shape)

    def _retry_on_oom(self, work: Callable[[], Any]) -> Any:
        """Run work for one image; on an out-of-memory error, release caches and try again."""
        try:
            return work()
        except OutOfMemoryError:
            self._models.release_memory()
        try:
            return work()
        except OutOfMemoryError as error:
            raise _too_large(error) from error

    def _fail(self, job: ActiveJob, error: Exception) -> None:
        self._end(job)
        self._report_failure(job.job_id, error)

    def _report_failure(self, job_id: str, error: Exception) -> None:
        failure = failure_of(error)
        unexpected = error if not isinstance(error, CalotypeError) else None
        _log.warning(
            "job failed: %s",
            error,
            extra={"job_id": job_id, "kind": failure.kind},
            exc_info=unexpected,
        )
        self._emit(Failed(job_id=job_id, failure=failure), ())

    def _end(self, job: ActiveJob) -> None:
        job.ended = True
        job.runs.clear()
        # These entries would keep the engine and its device memory beyond the lease.
        self._preparing = deque(entry for entry in self._preparing if entry[0] is not job)
        self._undecoded = deque(entry for entry in self._undecoded if entry[0] is not job)
        del self._jobs[job.job_id]
        job.lease.release()


def _shortest_first(jobs: Sequence[ActiveJob]) -> Iterator[_BatchItem]:
    waited = [job for job in jobs if job.has_waited]
    others = [job for job in jobs if not job.has_waited]
    for job in [*waited, *sorted(others, key=lambda job: job.steps_left)]:
        yield from [_BatchItem(job, index) for index in job.runs]
        while job.has_more and not job.ended:
            yield _BatchItem(job, job.begun)


def _padded_rows(engine: JobEngine, rows: int, limit: int) -> int:
    """Return the number of rows to evaluate, with padding.

    A padding row costs less than a new batch size, if new sizes are expensive.
    """
    return min(bucket(rows), limit) if engine.shapes_cost else rows


def _rows(items: Sequence[_BatchItem]) -> int:
    return sum(item.job.order.rows for item in items)


def _too_large(error: Exception) -> DoesNotFitError:
    return DoesNotFitError(
        f"one image alone ran out of memory: {error}; use a smaller size, or decode in tiles (tile_vae)"
    )
