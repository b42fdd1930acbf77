"""Questions to workers about models, and their answers. Knows nothing of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from calotype.core.errors import CalotypeError, DoesNotFitError, ModelFileError, NotFoundError
from calotype.serve.ipc.messages import FromWorker, Load, ModelFailed, Models, Unload
from calotype.serve.scheduler.worker_slot import WorkerSlot
from calotype.serve.service import UnavailableError
from calotype.spec.job import JobFailure


@dataclass(eq=False)
class _PendingRequest:
    seat: WorkerSlot
    message: Load | Unload
    answer: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def is_answered_by(self, models: Models) -> bool:
        name = self.message.model
        held = [one for one in models.models if name in (one.name, one.sha256)]
        if isinstance(self.message, Load):
            return models.asked == name or any(one.preset is None for one in held)
        return models.asked == name or not held


class PendingModelRequests:
    """Those that wait for an answer."""

    def __init__(self) -> None:
        self._open: set[_PendingRequest] = set()

    async def ask_all(self, seats: Iterable[WorkerSlot], message: Load | Unload, patience_s: float) -> None:
        """Ask every worker that is ready, and wait for all; one that fails is an error."""
        ready = [seat for seat in seats if seat.state == "ready"]
        if not ready:
            raise UnavailableError("no worker is ready; try again when one is")
        asked = (self._ask(seat, message, patience_s) for seat in ready)
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _ask(self, seat: WorkerSlot, message: Load | Unload, patience_s: float) -> None:
        """Ask one worker, and wait until it has done it."""
        question = _PendingRequest(seat, message)
        self._open.add(question)
        try:
            async with asyncio.timeout(patience_s):
                await seat.send(message)
                await question.answer
        except TimeoutError:
            raise UnavailableError(
                f"worker {seat.name} did not {message.kind} {message.model!r} within {patience_s:g} s"
            ) from None
        finally:
            self._open.discard(question)

    def on_message(self, seat: WorkerSlot, message: FromWorker) -> None:
        for question in [one for one in self._open if one.seat is seat and not one.answer.done()]:
            if isinstance(message, Models) and question.is_answered_by(message):
                question.answer.set_result(None)
            elif isinstance(message, ModelFailed) and message.model == question.message.model:
                question.answer.set_exception(error_of(message.failure))

    def on_worker_died(self, seat: WorkerSlot) -> None:
        for question in [one for one in self._open if one.seat is seat and not one.answer.done()]:
            question.answer.set_exception(UnavailableError(f"worker {seat.name} died before it could answer"))


def error_of(failure: JobFailure) -> CalotypeError:
    """The error that a worker's failure was."""
    match failure.kind:
        case "not_found":
            return NotFoundError(failure.message)
        case "does_not_fit":
            return DoesNotFitError(failure.message)
        case "bad_model_file":
            # The message names the file.
            file, _, rule = failure.message.partition(": ")
            return ModelFileError(file, rule)
        case _:
            return CalotypeError(failure.message)
