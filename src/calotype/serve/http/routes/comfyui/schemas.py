"""Jobs and their news in ComfyUI's words. Knows nothing of routes or sockets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from calotype.core.errors import RequestError
from calotype.serve.ipc.messages import NodeNews
from calotype.serve.service import JobEvent
from calotype.spec.job import FINAL_STATES, Job, WorkflowReport

Message = tuple[str, dict[str, Any]]
"""A type and its data."""

_PREVIEW, _JPEG, _PNG = 1, 1, 2
_FRAME = struct.Struct(">II")


def number_of(job: Job) -> float:
    """Where a workflow stands in ComfyUI's row: what its client asked for, or how many came before."""
    asked = job.request.get("number")
    if asked is not None:
        return float(asked)
    return -job.sequence if job.request.get("front") else job.sequence


def queued(job: Job) -> list[Any]:
    """A workflow as it stands in a queue and in the history."""
    extra = {**job.request["extra_data"], "client_id": job.request["client_id"]}
    return [number_of(job), job.id, job.request["prompt"], extra, job.request["outputs"]]


def remembered(job: Job, viewer: str) -> dict[str, Any]:
    """An ended workflow as the history tells it.

    Images of another client than `viewer` name their `client`, so that `/view` with the same values finds
    them, whatever files of the same name the viewer has.
    """
    report = job.report or WorkflowReport()
    outputs = report.outputs
    if job.client != viewer:
        outputs = {node: _with_client(ui, job.client) for node, ui in outputs.items()}
    about = {
        node: {"node_id": node, "display_node": node, "parent_node": None, "real_node_id": node}
        for node in report.outputs
    }
    return {
        "prompt": queued(job),
        "outputs": outputs,
        "status": {
            "status_str": "success" if job.state == "done" else "error",
            "completed": job.state == "done",
            "messages": [list(message) for message in _story(job, report)],
        },
        "meta": about,
    }


def _with_client(ui: Any, client: str) -> Any:
    """What a node shows, with the client in every entry that names a file."""

    def entry(value: Any) -> Any:
        return {**value, "client": client} if isinstance(value, dict) and "filename" in value else value

    if not isinstance(ui, dict):
        return ui
    return {
        kind: [entry(value) for value in values] if isinstance(values, list) else values
        for kind, values in ui.items()
    }


def is_remembered(job: Job) -> bool:
    """Whether the history has it: one that was taken back before it began never was."""
    return (
        job.kind == "workflow" and job.state in FINAL_STATES and (job.attempts > 0 or job.state == "failed")
    )


def _story(job: Job, report: WorkflowReport) -> Iterator[Message]:
    began = {"prompt_id": job.id, "timestamp": _milliseconds(job.started_at or job.created_at)}
    yield "execution_start", began
    yield "execution_cached", {"nodes": list(report.cached), **began}
    yield ending(job)


def ending(job: Job) -> Message:
    """The last word about a workflow."""
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


def event_messages(happening: JobEvent) -> Iterator[Message]:
    """What the workflow's own client hears."""
    job = happening.job
    if happening.news is not None:
        yield from _news(job, happening.news)
    elif is_remembered(job):
        yield ending(job)
        yield "executing", {"node": None, "prompt_id": job.id}


def _news(job: Job, news: NodeNews) -> Iterator[Message]:
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
    """A preview as sockets carry it."""
    kind = _PNG if preview.startswith(b"\x89PNG") else _JPEG
    return _FRAME.pack(_PREVIEW, kind) + preview


def status(remaining: int) -> dict[str, Any]:
    """How many workflows wait or run."""
    return {"status": {"exec_info": {"queue_remaining": remaining}}}


def refusal(error: RequestError) -> dict[str, Any]:
    """What is wrong with a body, in the form of a graph that was found wrong."""
    fault = {"type": "invalid_prompt", "message": str(error), "details": str(error), "extra_info": {}}
    return {"error": fault, "node_errors": {}}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
