"""Converts jobs and job events to ComfyUI's JSON and WebSocket messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from calotype.core.errors import RequestError
from calotype.serve.ipc.messages import NodeNews
from calotype.serve.service import JobEvent
from calotype.spec.job import FINAL_STATES, Job, WorkflowReport

Message = tuple[str, dict[str, Any]]
"""Message type and data."""

_PREVIEW, _JPEG, _PNG = 1, 1, 2
_FRAME = struct.Struct(">II")


def number_of(job: Job) -> float:
    """Return ComfyUI's queue number: the one that the client sent, or the count of earlier jobs."""
    number = job.request.get("number")
    if number is not None:
        return float(number)
    return -job.sequence if job.request.get("front") else job.sequence


def queued(job: Job) -> list[Any]:
    """Return a workflow's entry in the queue and in the history."""
    extra = {**job.request["extra_data"], "client_id": job.request["client_id"]}
    return [number_of(job), job.id, job.request["prompt"], extra, job.request["outputs"]]


def remembered(job: Job, viewer: str) -> dict[str, Any]:
    """Return an ended workflow's entry in the history.

    Images of another client than `viewer` name their `client`, so that `/view` with the same values finds
    them, whatever files of the same name the viewer has.
    """
    report = job.report or WorkflowReport()
    outputs = report.outputs
    if job.client != viewer:
        outputs = {node: _with_client(ui, job.client) for node, ui in outputs.items()}
    meta = {
        node: {"node_id": node, "display_node": node, "parent_node": None, "real_node_id": node}
        for node in report.outputs
    }
    return {
        "prompt": queued(job),
        "outputs": outputs,
        "status": {
            "status_str": "success" if job.state == "done" else "error",
            "completed": job.state == "done",
            "messages": [list(message) for message in _history_messages(job, report)],
        },
        "meta": meta,
    }


def _with_client(ui: Any, client: str) -> Any:
    """Add the client to every entry of a node's UI output that names a file."""

    def entry(value: Any) -> Any:
        return {**value, "client": client} if isinstance(value, dict) and "filename" in value else value

    if not isinstance(ui, dict):
        return ui
    return {
        kind: [entry(value) for value in values] if isinstance(values, list) else values
        for kind, values in ui.items()
    }


def is_remembered(job: Job) -> bool:
    """Whether the history contains the job; a job cancelled before it started is not in it."""
    return (
        job.kind == "workflow" and job.state in FINAL_STATES and (job.attempts > 0 or job.state == "failed")
    )


def _history_messages(job: Job, report: WorkflowReport) -> Iterator[Message]:
    started = {"prompt_id": job.id, "timestamp": _milliseconds(job.started_at or job.created_at)}
    yield "execution_start", started
    yield "execution_cached", {"nodes": list(report.cached), **started}
    yield final_message(job)


def final_message(job: Job) -> Message:
    """Return the final message of a workflow."""
    report = job.report or WorkflowReport()
    data: dict[str, Any] = {"prompt_id": job.id, "timestamp": _milliseconds(job.ended_at or 0.0)}
    if job.state == "done":
        return "execution_success", data
    failed = report.failed
    data |= {
        "node_id": failed.node if failed else None,
        "node_type": failed.node_class if failed else None,
        "executed": list(report.executed),
    }
    if job.state == "cancelled":
        return "execution_interrupted", data
    message = job.failure.message if job.failure else ""
    data |= {
        "exception_message": failed.message if failed else message,
        "exception_type": failed.error if failed else (job.failure.kind if job.failure else ""),
        "traceback": list(failed.traceback) if failed else [],
        "current_inputs": {},
        "current_outputs": list(report.executed),
    }
    return "execution_error", data


def event_messages(job_event: JobEvent) -> Iterator[Message]:
    """Yield the messages for the client that submitted the workflow."""
    job = job_event.job
    if job_event.news is not None:
        yield from _node_messages(job, job_event.news)
    elif is_remembered(job):
        yield final_message(job)
        yield "executing", {"node": None, "prompt_id": job.id}


def _node_messages(job: Job, news: NodeNews) -> Iterator[Message]:
    data: dict[str, Any] = {"prompt_id": job.id}
    match news.happened:
        case "started":
            yield "execution_start", {**data, "timestamp": _milliseconds(job.started_at or 0.0)}
        case "cached":
            at = _milliseconds(job.started_at or 0.0)
            yield "execution_cached", {"nodes": list(news.nodes), **data, "timestamp": at}
        case "executing":
            yield "executing", {"node": news.node, "display_node": news.node, **data}
        case "progressed":
            yield "progress", {"value": news.value, "max": news.maximum, **data, "node": news.node}
        case "executed" if news.ui is not None:
            yield "executed", {"node": news.node, "display_node": news.node, "output": news.ui, **data}


def preview_frame(preview: bytes) -> bytes:
    """Encode a preview as a binary WebSocket frame."""
    kind = _PNG if preview.startswith(b"\x89PNG") else _JPEG
    return _FRAME.pack(_PREVIEW, kind) + preview


def status(remaining: int) -> dict[str, Any]:
    """Return the data of a status message: the number of workflows that wait or run."""
    return {"status": {"exec_info": {"queue_remaining": remaining}}}


def refusal(error: RequestError) -> dict[str, Any]:
    """Return the problems of a body in the format of an invalid graph."""
    problem = {"type": "invalid_prompt", "message": str(error), "details": str(error), "extra_info": {}}
    return {"error": problem, "node_errors": {}}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
