"""Start images and masks, decoded in a thread while the worker evaluates other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from calotype.serve.ipc.messages import Work
from calotype.serve.worker.model_cache import Lease

WAIT_S = 0.01
"""How long to wait for an image where there is nothing else to do; then messages are looked at."""


@dataclass(eq=False)
class Reading:
    """A job whose images are being decoded."""

    work: Work
    lease: Lease
    given: Future[Any]
    """What the engine's `open` takes."""


class StartImages:
    """The jobs whose images are being decoded. One image at a time, in the order of arrival."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "start images")
        self._readings: dict[str, Reading] = {}

    def __bool__(self) -> bool:
        return bool(self._readings)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._readings

    def add(self, work: Work, lease: Lease, attachments: Sequence[bytes]) -> None:
        """Begin to decode a job's images."""
        given = self._thread.submit(lease.engine.read, work, attachments)
        self._readings[work.job_id] = Reading(work, lease, given)

    def take_done(self, *, idle: bool) -> list[Reading]:
        """Those that are decoded, or cannot be; waits a moment for one if there is nothing else to do."""
        if self._readings and idle:
            wait([reading.given for reading in self._readings.values()], WAIT_S, FIRST_COMPLETED)
        done = [reading for reading in self._readings.values() if reading.given.done()]
        for reading in done:
            del self._readings[reading.work.job_id]
        return done

    def stop(self, job_id: str) -> None:
        """Leave a job out; an image that is being decoded is decoded to its end."""
        reading = self._readings.pop(job_id)
        reading.given.cancel()
        reading.lease.release()

    def watch(self, job_id: str, previews: bool) -> None:
        """Make previews for a job once it begins, or none."""
        reading = self._readings[job_id]
        reading.work = reading.work.model_copy(update={"previews": previews})
