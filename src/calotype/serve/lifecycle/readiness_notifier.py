"""Sends a starting server's readiness messages: JSON lines over a pipe, and sd_notify for systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal

Kind = Literal["begun", "loading", "ready", "draining", "failed"]


@dataclass(frozen=True)
class ReadinessMessage:
    """One message."""

    kind: Kind
    text: str = ""


class ReadinessNotifier:
    """Sends messages to the process that started the server, while it listens, and to systemd."""

    def __init__(self, pipe: int | None = None) -> None:
        self._pipe: IO[str] | None = None if pipe is None else os.fdopen(pipe, "w", encoding="utf-8")

    def notify(self, kind: Kind, text: str = "") -> None:
        if self._pipe is not None:
            try:
                print(json.dumps({"kind": kind, "text": text}), file=self._pipe, flush=True)
                if kind in ("ready", "failed"):
                    self._close()
            except BrokenPipeError:
                self._close()
        state = {"ready": "READY=1", "draining": "STOPPING=1"}.get(kind)
        if state:
            _notify_systemd(state)

    def _close(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.close()
        self._pipe = None


def read_messages(pipe: IO[str]) -> Iterator[ReadinessMessage]:
    """The messages from a pipe, up to its end."""
    for line in pipe:
        values = json.loads(line)
        yield ReadinessMessage(values["kind"], values["text"])


def _notify_systemd(state: str) -> None:
    """Send a state as sd_notify does, if systemd started this process."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
