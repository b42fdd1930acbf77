"""ComfyUI's WebSocket: how the workflows go that were handed in under a client's name.

Whoever comes back under the same name hears at once where its running workflows are. Knows nothing of routes.
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
    """Messages as JSON text, previews as binary frames; what the client says is not listened to."""
    reach, visit = socket.app.state.reach, socket.state.visit
    assert isinstance(reach, AppState)
    assert isinstance(visit, Session)
    assert reach.workflows is not None
    name = name or uuid.uuid4().hex
    # Followed from before the client knows that it is connected: it misses nothing of what it then asks for.
    with reach.service.follow(client=visit.caller.can_see) as happenings:
        await socket.accept()
        leaving = asyncio.ensure_future(_left(socket))
        telling = asyncio.ensure_future(_tell(socket, name, visit, happenings, reach.workflows))
        staying = asyncio.ensure_future(_stayed(visit, reach.settings.ping_s))
        tasks = (leaving, telling, staying)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone = leaving.done()
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception) and not isinstance(outcome, WebSocketDisconnect):
            raise outcome
    if not gone:
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(GOING_AWAY if visit.is_valid() else KEY_REVOKED)


async def _left(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _stayed(visit: Session, look_every_s: float) -> None:
    """Until the client's key is revoked, though there is nothing to tell."""
    while visit.is_valid():
        await asyncio.sleep(look_every_s)


async def _tell(
    socket: WebSocket,
    name: str,
    visit: Session,
    happenings: AsyncIterator[JobEvent],
    workflows: WorkflowService,
) -> None:
    caller = visit.caller
    await _send(socket, "status", {**status(await workflows.unended(client=caller.can_see)), "sid": name})
    async for happening in happenings:
        if not visit.is_valid():
            return
        if happening.job.kind != "workflow":
            continue
        # An admin sees everybody's; a name is a client's own.
        if (happening.job.client, happening.job.request["client_id"]) == (caller.name, name):
            for message, data in event_messages(happening):
                await _send(socket, message, data)
            if happening.preview is not None:
                await socket.send_bytes(preview_frame(happening.preview))
        if happening.news is None:
            await _send(socket, "status", status(await workflows.unended(client=caller.can_see)))


async def _send(socket: WebSocket, message: str, data: dict[str, Any]) -> None:
    await socket.send_text(json.dumps({"type": message, "data": data}))
