"""Converts between protobuf messages and plain values."""

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
"""Clients drop a response with more than 8 KiB of trailing metadata, where problems may be base64."""

_STATES: dict[JobState, pb.JobState] = {
    "queued": pb.JOB_STATE_QUEUED,
    "running": pb.JOB_STATE_RUNNING,
    "done": pb.JOB_STATE_DONE,
    "failed": pb.JOB_STATE_FAILED,
    "cancelled": pb.JOB_STATE_CANCELLED,
}
_STATES_BACK: dict[int, JobState] = {number: state for state, number in _STATES.items()}


def plain(message: Message, place: str = "") -> dict[str, Any]:
    """Return the fields that are set, by name; rejects unknown fields."""
    if len(UnknownFieldSet(message)):
        numbers = ", ".join(str(field.field_number) for field in UnknownFieldSet(message))
        rule = f"has unknown fields ({numbers}); use the proto file of this server"
        raise RequestError([Problem(place or "message", rule)])
    return {field.name: _plain(field, value, place) for field, value in message.ListFields()}


def _plain(field: Any, value: Any, place: str) -> Any:
    path = f"{place}.{field.name}" if place else field.name
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    return [plain(item, path) for item in value] if field.is_repeated else plain(value, path)


_EXCLUDED: dict[str, Any] = {
    **dict.fromkeys(("request", "state", "kind", "sequence", "report"), True),
    "pictures": {"__all__": {"file"}},
}
"""Fields that are converted separately, and fields only for clients of workflows."""


def job_message(job: Job, *, with_request: bool = True) -> pb.Job:
    """Convert a job to a message."""
    values = job.model_dump(mode="json", exclude=_EXCLUDED, exclude_none=True)
    request = json.dumps(job.request) if with_request else ""
    return pb.Job(state=_STATES[job.state], request_json=request, **values)


def parse_state(number: int) -> JobState | None:
    """Parse the state of a filter; None if it has none."""
    if number and number not in _STATES_BACK:
        raise RequestError([Problem("state", f"{number} is not a job state", number)])
    return _STATES_BACK[number] if number else None


def models_message(models: tuple[LoadedModel, ...]) -> pb.LoadedModels:
    """Convert models to a message."""
    return pb.LoadedModels(models=[pb.LoadedModel(**model.model_dump()) for model in models])


def status_message(status: Status) -> pb.DeploymentStatus:
    """Convert the deployment's status to a message."""
    workers = [
        pb.WorkerStatus(**{**vars(worker), "models": models_message(worker.models).models})
        for worker in status.workers
    ]
    return pb.DeploymentStatus(**{**vars(status), "workers": workers})


def problems_message(error: RequestError) -> pb.Problems:
    """Convert the problems of a request to a message, up to the size limit."""
    message = pb.Problems()
    for problem in error.problems:
        message.problems.add(
            field=problem.field[:MAX_RULE_LENGTH],
            rule=problem.message[:MAX_RULE_LENGTH],
            value_json=json.dumps(problem.value, default=str)[:MAX_RULE_LENGTH],
        )
        if message.ByteSize() > MOST_PROBLEM_BYTES:
            del message.problems[-1]
            break
    return message


def status_text(text: str) -> str:
    """Shorten a status text to the size limit; each byte of a non-ASCII character takes three bytes."""
    remaining = MOST_MESSAGE_BYTES
    for index, character in enumerate(text):
        remaining -= 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if remaining < 0:
            return text[:index]
    return text
