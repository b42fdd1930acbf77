"""Decodes start images and masks in a thread while the worker evaluates other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from calotype.serve.ipc.messages import Work
from calotype.serve.worker.model_cache import Lease

WAIT_S = 0.01
"""Longest wait for an image while idle; then the worker reads messages."""


@dataclass(eq=False)
class Reading:
    """A job whose images are being decoded."""

    work: Work
    lease: Lease
    given: Future[Any]
    """The decoded images, for the engine's `prepare`."""


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
        """Start decoding a job's images."""
        given = self._thread.submit(lease.engine.read, work, attachments)
        self._readings[work.job_id] = Reading(work, lease, given)

    def take_done(self, *, idle: bool) -> list[Reading]:
        """Return jobs whose images are decoded or invalid; if idle, wait briefly for one."""
        if self._readings and idle:
            wait([reading.given for reading in self._readings.values()], WAIT_S, FIRST_COMPLETED)
        done = [reading for reading in self._readings.values() if reading.given.done()]
        for reading in done:
            del self._readings[reading.work.job_id]
        return done

    def stop(self, job_id: str) -> None:
        """Drop a job; a decode that has started runs to its end."""
        reading = self._readings.pop(job_id)
        reading.given.cancel()
        reading.lease.release()

    def watch(self, job_id: str, previews: bool) -> None:
        """Turn previews of a job on or off."""
        reading = self._readings[job_id]
        reading.work = reading.work.model_copy(update={"previews": previews})
