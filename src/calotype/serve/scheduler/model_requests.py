"""Requests to workers to load and unload models, and their replies."""

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
class _Request:
    slot: WorkerSlot
    message: Load | Unload
    reply: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def is_answered_by(self, models: Models) -> bool:
        name = self.message.model
        loaded = [model for model in models.models if name in (model.name, model.sha256)]
        if isinstance(self.message, Load):
            return models.asked == name or any(model.preset is None for model in loaded)
        return models.asked == name or not loaded


class PendingModelRequests:
    """Requests that wait for a reply."""

    def __init__(self) -> None:
        self._open: set[_Request] = set()

    async def ask_all(self, slots: Iterable[WorkerSlot], message: Load | Unload, timeout_s: float) -> None:
        """Send a request to every ready worker and wait for all replies; a failure raises."""
        ready = [slot for slot in slots if slot.state == "ready"]
        if not ready:
            raise UnavailableError("no worker is ready; try again when one is")
        replies = (self._request(slot, message, timeout_s) for slot in ready)
        for outcome in await asyncio.gather(*replies, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _request(self, slot: WorkerSlot, message: Load | Unload, timeout_s: float) -> None:
        """Send a request to one worker and wait for its reply."""
        request = _Request(slot, message)
        self._open.add(request)
        try:
            async with asyncio.timeout(timeout_s):
                await slot.send(message)
                await request.reply
        except TimeoutError:
            raise UnavailableError(
                f"worker {slot.name} did not {message.kind} {message.model!r} within {timeout_s:g} s"
            ) from None
        finally:
            self._open.discard(request)

    def _waiting(self, slot: WorkerSlot) -> list[_Request]:
        """Requests to this worker that have no reply yet."""
        return [request for request in self._open if request.slot is slot and not request.reply.done()]

    def on_message(self, slot: WorkerSlot, message: FromWorker) -> None:
        for request in self._waiting(slot):
            if isinstance(message, Models) and request.is_answered_by(message):
                request.reply.set_result(None)
            elif isinstance(message, ModelFailed) and message.model == request.message.model:
                request.reply.set_exception(error_of(message.failure))

    def on_worker_died(self, slot: WorkerSlot) -> None:
        for request in self._waiting(slot):
            request.reply.set_exception(UnavailableError(f"worker {slot.name} died before it could reply"))


def error_of(failure: JobFailure) -> CalotypeError:
    """The exception for a worker's failure."""
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
