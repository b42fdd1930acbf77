"""A client of ComfyUI as people write it: urllib for requests, websocket-client for messages.

Knows nothing of Calotype: what it gets wrong, scripts of users get wrong too.
"""

from __future__ import annotations

import io
import json
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any

import websocket

PATIENCE_S = 60.0


class RefusedError(Exception):
    """An answer that is no 200."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body
        super().__init__(f"{status}: {body[:500]!r}")


class ComfyClient:
    """One script, with an id and a socket of its own."""

    def __init__(self, url: str, client_id: str | None = None, prefix: str = "") -> None:
        self.server = url.removeprefix("http://")
        self.prefix = prefix
        self.client_id = client_id or str(uuid.uuid4())
        self.previews: list[tuple[int, bytes]] = []
        self.socket = websocket.WebSocket()
        self.connect()

    def connect(self) -> None:
        self.socket = websocket.create_connection(
            f"ws://{self.server}{self.prefix}/ws?clientId={self.client_id}", timeout=PATIENCE_S
        )

    def close(self) -> None:
        self.socket.close()

    def open(self, request: urllib.request.Request | str) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(error.code, error.read()) from None

    def queue_prompt(self, prompt: object, **more: Any) -> dict[str, Any]:
        data = json.dumps({"prompt": prompt, "client_id": self.client_id, **more}).encode("utf-8")
        request = urllib.request.Request(f"http://{self.server}{self.prefix}/prompt", data=data)
        return json.loads(self.open(request))

    def get(self, path: str, **query: Any) -> Any:
        return json.loads(self.get_bytes(path, **query))

    def get_bytes(self, path: str, **query: Any) -> bytes:
        return self.open(f"http://{self.server}{self.prefix}{path}?{urllib.parse.urlencode(query)}")

    def post(self, path: str, body: dict[str, Any] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.open(
            urllib.request.Request(f"http://{self.server}{self.prefix}{path}", data=data, method="POST")
        )

    def make_pictures(self, prompt: str, *, wait: bool = True, **knobs: Any) -> dict[str, Any]:
        """An ordinary job, the one thing here that is not ComfyUI's."""
        body = {"request": {"prompt": prompt, "steps": 4, "width": 64, "height": 64, **knobs}}
        request = urllib.request.Request(
            f"http://{self.server}/v1/jobs?wait={str(wait).lower()}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return json.loads(self.open(request))

    def upload(self, data: bytes, name: str, path: str = "/upload/image", **fields: str) -> dict[str, str]:
        """A form as `requests` sends one."""
        boundary = uuid.uuid4().hex
        body = io.BytesIO()
        for field, value in fields.items():
            body.write(
                f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode()
            )
        body.write(
            f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n'
            "Content-Type: image/png\r\n\r\n".encode()
        )
        body.write(data + f"\r\n--{boundary}--\r\n".encode())
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        request = urllib.request.Request(
            f"http://{self.server}{self.prefix}{path}", data=body.getvalue(), headers=headers
        )
        return json.loads(self.open(request))

    def message(self) -> dict[str, Any] | None:
        """The next message that is no preview; nothing when a ping came, which keeps a socket alive."""
        while True:
            opcode, data = self.socket.recv_data(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_TEXT:
                return json.loads(data)
            if opcode != websocket.ABNF.OPCODE_BINARY:
                assert opcode == websocket.ABNF.OPCODE_PING, f"the server has closed the socket: {data!r}"
                return None
            event, kind = struct.unpack(">II", data[:8])
            assert event == 1
            self.previews.append((kind, data[8:]))

    def until(self, kind: str, **data: Any) -> list[dict[str, Any]]:
        """Messages up to the first of this type with these values, which is the last."""
        heard: list[dict[str, Any]] = []
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            message = self.message()
            if message is None:
                continue
            heard.append(message)
            if message["type"] == kind and data.items() <= message["data"].items():
                return heard
        raise AssertionError(f"no {kind} with {data}; heard at last: {heard[-20:]}")

    def until_done(self, prompt_id: str) -> list[dict[str, Any]]:
        return self.until("executing", node=None, prompt_id=prompt_id)

    def images(self, prompt_id: str) -> dict[str, list[bytes]]:
        """A prompt's pictures by node, as ComfyUI's own example fetches them."""
        history = self.get(f"/history/{prompt_id}")[prompt_id]
        return {
            node: [self.get_bytes("/view", **image) for image in output.get("images", ())]
            for node, output in history["outputs"].items()
        }
