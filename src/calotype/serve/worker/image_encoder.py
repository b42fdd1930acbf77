"""The end of a job: PNG files made in threads, and the message with them. Knows nothing of batches."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

from calotype.core.errors import DoesNotFitError
from calotype.serve.ipc.channel import MAX_ATTACHMENT_BYTES
from calotype.serve.ipc.messages import Failed, Finished
from calotype.serve.worker.protocols import Png, failure_of

_log = logging.getLogger(__name__)

MAX_THREADS = 4
"""Compressing a large picture takes longer than a fast GPU needs to make the next."""

Emit = Callable[[Any, Sequence[bytes]], None]
"""Sends a message with attachments; from any thread."""


class ImageEncoder:
    """Makes files of decoded pictures, and says so when a job's are complete."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._threads = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1), "pictures")

    def encode(self, picture: Callable[[], Png]) -> Future[Png]:
        return self._threads.submit(picture)

    def complete(
        self, job_id: str, request: dict[str, Any], seeds: Sequence[int], files: Sequence[Future[Png]]
    ) -> None:
        """Send the job's pictures once all of them are files. Returns at once."""
        left, lock = len(files), Lock()

        def one_more(_: Future[Png]) -> None:
            nonlocal left
            with lock:
                left -= 1
                last = left == 0
            if last:
                self._send(job_id, request, seeds, files)

        for file in files:
            file.add_done_callback(one_more)

    def close(self) -> None:
        """Wait for what is under way."""
        self._threads.shutdown(wait=True)

    def _send(
        self, job_id: str, request: dict[str, Any], seeds: Sequence[int], files: Sequence[Future[Png]]
    ) -> None:
        try:
            self._emit_finished(job_id, request, seeds, [file.result() for file in files])
        except Exception as error:
            _log.exception("job failed", extra={"job_id": job_id})
            self._emit(Failed(job_id=job_id, failure=failure_of(error)), ())
        else:
            _log.info("job finished", extra={"job_id": job_id})

    def _emit_finished(
        self, job_id: str, request: dict[str, Any], seeds: Sequence[int], pictures: Sequence[Png]
    ) -> None:
        total = sum(len(picture.data) for picture in pictures)
        if total > MAX_ATTACHMENT_BYTES:
            raise DoesNotFitError(
                f"the job's {len(pictures)} pictures have {total} bytes together, the limit is "
                f"{MAX_ATTACHMENT_BYTES}; ask for fewer at a time"
            )
        finished = Finished(
            job_id=job_id,
            request=request,
            widths=tuple(picture.width for picture in pictures),
            heights=tuple(picture.height for picture in pictures),
            seeds=tuple(seeds),
        )
        self._emit(finished, [picture.data for picture in pictures])
