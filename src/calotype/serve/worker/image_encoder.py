"""Encodes PNG files in threads and sends a job's result when all of them are done."""

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
"""Several, because compressing a large image takes longer than a fast GPU takes for the next."""

Emit = Callable[[Any, Sequence[bytes]], None]
"""Sends a message with attachments; thread-safe."""


class ImageEncoder:
    """Encodes decoded images, and reports a job as finished when all its files are complete."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._threads = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1), "pictures")

    def encode(self, encode_png: Callable[[], Png]) -> Future[Png]:
        return self._threads.submit(encode_png)

    def complete(
        self, job_id: str, request: dict[str, Any], seeds: Sequence[int], files: Sequence[Future[Png]]
    ) -> None:
        """Send the job's images once all of them are encoded. Returns at once."""
        remaining, lock = len(files), Lock()

        def on_file_done(_: Future[Png]) -> None:
            nonlocal remaining
            with lock:
                remaining -= 1
                last = remaining == 0
            if last:
                self._send(job_id, request, seeds, files)

        for file in files:
            file.add_done_callback(on_file_done)

    def close(self) -> None:
        """Wait for pending files."""
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
        self, job_id: str, request: dict[str, Any], seeds: Sequence[int], images: Sequence[Png]
    ) -> None:
        total = sum(len(image.data) for image in images)
        if total > MAX_ATTACHMENT_BYTES:
            raise DoesNotFitError(
                f"the job's {len(images)} images have {total} bytes together, the limit is "
                f"{MAX_ATTACHMENT_BYTES}; request fewer images per job"
            )
        finished = Finished(
            job_id=job_id,
            request=request,
            widths=tuple(image.width for image in images),
            heights=tuple(image.height for image in images),
            seeds=tuple(seeds),
        )
        self._emit(finished, [image.data for image in images])
