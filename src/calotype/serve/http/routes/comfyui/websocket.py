"""ComfyUI's WebSocket: progress of the workflows that were submitted under a client id.

A client that reconnects with the same id gets the state of its running workflows at once.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.websockets import WebSocket, WebSocketDisconnect

from calotype.serve.auth import Session
from calotype.serve.http.dependencies import AppState
from calotype.serve.http.routes.comfyui.schemas import event_messages, preview_frame, status
from calotype.serve.service import JobEvent
from calotype.serve.workflow.service import WorkflowService

router = APIRouter(tags=["ComfyUI"])
GOING_AWAY = 1001
KEY_REVOKED = 1008


@router.websocket("/ws")
async def websocket(
    socket: WebSocket, name: Annotated[str, Query(alias="clientId", max_length=200)] = ""
) -> None:
    """Send messages as JSON text and previews as binary frames; ignore what the client sends."""
    reach, visit = socket.app.state.reach, socket.state.visit
    assert isinstance(reach, AppState)
    assert isinstance(visit, Session)
    assert reach.workflows is not None
    name = name or uuid.uuid4().hex
    # Subscribe before accepting: the client misses no event of a job that it submits after connecting.
    with reach.service.follow(client=visit.caller.can_see) as job_events:
        await socket.accept()
        disconnect_task = asyncio.ensure_future(_wait_for_disconnect(socket))
        send_task = asyncio.ensure_future(_send_events(socket, name, visit, job_events, reach.workflows))
        revocation_task = asyncio.ensure_future(_wait_for_revocation(visit, reach.settings.ping_s))
        tasks = (disconnect_task, send_task, revocation_task)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnected = disconnect_task.done()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect):
            raise result
    if not disconnected:
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(GOING_AWAY if visit.is_valid() else KEY_REVOKED)


async def _wait_for_disconnect(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _wait_for_revocation(visit: Session, interval_s: float) -> None:
    """Return when the client's key is revoked, even while there are no events."""
    while visit.is_valid():
        await asyncio.sleep(interval_s)


async def _send_events(
    socket: WebSocket,
    name: str,
    visit: Session,
    job_events: AsyncIterator[JobEvent],
    workflows: WorkflowService,
) -> None:
    caller = visit.caller
    await _send(socket, "status", {**status(await workflows.unended(client=caller.can_see)), "sid": name})
    async for job_event in job_events:
        if not visit.is_valid():
            return
        if job_event.job.kind != "workflow":
            continue
        # An admin follows all jobs, but a client id belongs to one client.
        if (job_event.job.client, job_event.job.request["client_id"]) == (caller.name, name):
            for message, data in event_messages(job_event):
                await _send(socket, message, data)
            if job_event.preview is not None:
                await socket.send_bytes(preview_frame(job_event.preview))
        if job_event.news is None:
            await _send(socket, "status", status(await workflows.unended(client=caller.can_see)))


async def _send(socket: WebSocket, message: str, data: dict[str, Any]) -> None:
    await socket.send_text(json.dumps({"type": message, "data": data}))
