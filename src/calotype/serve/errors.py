"""Error kinds that all interfaces share, and the exceptions they stand for."""

from __future__ import annotations

from typing import Literal

from calotype.core.errors import (
    CalotypeError,
    CancelledError,
    DoesNotFitError,
    ModelFileError,
    NotFoundError,
    OfflineError,
    RequestError,
)
from calotype.serve.auth import ForbiddenError, UnknownClientError
from calotype.serve.service import DamagedPictureError, QueueFullError, UnavailableError
from calotype.serve.workflow.service import WorkflowRefusedError
from calotype.spec.job import FailureKind, Job, JobFailure

ErrorKind = (
    FailureKind
    | Literal[
        "unknown_client",
        "forbidden",
        "too_large",
        "too_slow",
        "wrong_type",
        "wrong_method",
        "queue_full",
        "unavailable",
        "damaged",
        "cancelled",
        "client_left",
    ]
)


class TooLargeError(CalotypeError):
    """More bytes than a request may have."""


class TooSlowError(CalotypeError):
    """A request that took too long to arrive."""


class WrongTypeError(CalotypeError):
    """A body of an unsupported type."""


class ClientLeftError(CalotypeError):
    """The client has disconnected."""


class JobFailedError(CalotypeError):
    """A job that a client waited for has failed."""

    def __init__(self, job_id: str, failure: JobFailure) -> None:
        self.failure = failure
        super().__init__(f"job {job_id}: {failure.message}")


_KINDS: tuple[tuple[type[CalotypeError], ErrorKind], ...] = (
    (RequestError, "bad_request"),
    (WorkflowRefusedError, "bad_request"),
    (UnknownClientError, "unknown_client"),
    (ForbiddenError, "forbidden"),
    (NotFoundError, "not_found"),
    (DoesNotFitError, "does_not_fit"),
    (ModelFileError, "bad_model_file"),
    (QueueFullError, "queue_full"),
    (UnavailableError, "unavailable"),
    (OfflineError, "unavailable"),
    (DamagedPictureError, "damaged"),
    (CancelledError, "cancelled"),
    (TooLargeError, "too_large"),
    (TooSlowError, "too_slow"),
    (WrongTypeError, "wrong_type"),
    (ClientLeftError, "client_left"),
)


def kind_of(error: CalotypeError) -> ErrorKind:
    """The kind of an error; `bad_request` for one that is not listed."""
    if isinstance(error, JobFailedError):
        return error.failure.kind
    return next((kind for known, kind in _KINDS if isinstance(error, known)), "bad_request")


def done(job: Job) -> Job:
    """The job if it is done; otherwise raises the error that says why not."""
    if job.failure is not None:
        raise JobFailedError(job.id, job.failure)
    if job.state == "cancelled":
        raise CancelledError(f"job {job.id} was cancelled")
    if job.state != "done":
        raise UnavailableError(
            f"the deployment stopped before job {job.id} ended; it continues at the next start"
        )
    return job
