"""Messages of the proto as plain values, and our values as messages. Knows nothing of calls."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from calotype.core.errors import Problem, RequestError
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.ipc.messages import LoadedModel
from calotype.serve.service import Status
from calotype.spec.job import Job, JobState

MAX_RULE_LENGTH = 200
MOST_MESSAGE_BYTES, MOST_PROBLEM_BYTES = 1500, 4096
"""Clients lose a whole answer whose trailing metadata have 8 KiB, in which problems may be base64."""

_STATES: dict[JobState, pb.JobState] = {
    "queued": pb.JOB_STATE_QUEUED,
    "running": pb.JOB_STATE_RUNNING,
    "done": pb.JOB_STATE_DONE,
    "failed": pb.JOB_STATE_FAILED,
    "cancelled": pb.JOB_STATE_CANCELLED,
}
_STATES_BACK: dict[int, JobState] = {number: state for state, number in _STATES.items()}


def plain(message: Message, place: str = "") -> dict[str, Any]:
    """The fields that were set, by name; refuses what this version does not know."""
    if len(UnknownFieldSet(message)):
        numbers = ", ".join(str(one.field_number) for one in UnknownFieldSet(message))
        rule = f"has fields that are not known here ({numbers}); use the proto of this server"
        raise RequestError([Problem(place or "message", rule)])
    return {field.name: _plain(field, value, place) for field, value in message.ListFields()}


def _plain(field: Any, value: Any, place: str) -> Any:
    inside = f"{place}.{field.name}" if place else field.name
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    return [plain(one, inside) for one in value] if field.is_repeated else plain(value, inside)


_NOT_TOLD: dict[str, Any] = {
    **dict.fromkeys(("request", "state", "kind", "sequence", "report"), True),
    "pictures": {"__all__": {"file"}},
}
"""What has a form of its own, and what is for clients of workflows alone."""


def job_message(job: Job, *, with_request: bool = True) -> pb.Job:
    """A job as a message."""
    values = job.model_dump(mode="json", exclude=_NOT_TOLD, exclude_none=True)
    request = json.dumps(job.request) if with_request else ""
    return pb.Job(state=_STATES[job.state], request_json=request, **values)


def parse_state(number: int) -> JobState | None:
    """The state that a filter names, if it names one."""
    if number and number not in _STATES_BACK:
        raise RequestError([Problem("state", f"{number} is no state of a job", number)])
    return _STATES_BACK[number] if number else None


def models_message(models: tuple[LoadedModel, ...]) -> pb.LoadedModels:
    """Models as a message."""
    return pb.LoadedModels(models=[pb.LoadedModel(**model.model_dump()) for model in models])


def status_message(status: Status) -> pb.DeploymentStatus:
    """The deployment as a message."""
    workers = [
        pb.WorkerStatus(**{**vars(worker), "models": models_message(worker.models).models})
        for worker in status.workers
    ]
    return pb.DeploymentStatus(**{**vars(status), "workers": workers})


def problems_message(error: RequestError) -> pb.Problems:
    """What is wrong with a request, as far as there is room for it."""
    told = pb.Problems()
    for problem in error.problems:
        told.problems.add(
            field=problem.field[:MAX_RULE_LENGTH],
            rule=problem.message[:MAX_RULE_LENGTH],
            value_json=json.dumps(problem.value, default=str)[:MAX_RULE_LENGTH],
        )
        if told.ByteSize() > MOST_PROBLEM_BYTES:
            del told.problems[-1]
            break
    return told


def status_text(text: str) -> str:
    """As much of a text as there is room for: whatever is not ASCII takes three bytes for each of its own."""
    room = MOST_MESSAGE_BYTES
    for index, character in enumerate(text):
        room -= 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if room < 0:
            return text[:index]
    return text
