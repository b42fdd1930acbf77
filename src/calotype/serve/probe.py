"""Asking a server from outside, as any client would: is it ready, and how long does a picture take.

Knows an address and nothing of what is behind it: a process, a container, another machine.
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from typing import Any

import httpx

from calotype.core.errors import CalotypeError

_EVERY_S = 0.5
_PNG = b"\x89PNG"


class NoAnswerError(CalotypeError):
    """A server that did not answer as it should."""


@dataclass(frozen=True)
class HttpProbe:
    """A server as other programs see it."""

    url: str
    api_key: str | None = None
    timeout_s: float = 600.0

    def wait_ready(self, limit_s: float) -> None:
        """Return when it says that it is ready."""
        until, last = time.monotonic() + limit_s, "nothing listens"
        while time.monotonic() < until:
            try:
                answer = httpx.get(f"{self.url}/readyz", timeout=5.0)
                if answer.status_code == httpx.codes.OK:
                    return
                last = f"it answers {answer.status_code}"
            except httpx.HTTPError as error:
                last = f"{type(error).__name__}: {error}"
            time.sleep(_EVERY_S)
        raise NoAnswerError(f"{self.url} was not ready after {limit_s:g} s: {last}; see its log")

    def time_image(self, prompt: str, **knobs: Any) -> float:
        """Seconds from asking for a picture to having it."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        began = time.perf_counter()
        try:
            answer = httpx.post(
                f"{self.url}/v1/images/generations",
                json={"prompt": prompt, "n": 1, **knobs},
                headers=headers,
                timeout=self.timeout_s,
            )
        except httpx.HTTPError as error:
            raise NoAnswerError(f"{self.url} did not answer: {type(error).__name__}: {error}") from None
        took = time.perf_counter() - began
        if answer.status_code != httpx.codes.OK:
            raise NoAnswerError(f"{self.url} answered {answer.status_code}: {_said(answer)}")
        (made,) = answer.json()["data"]
        if not base64.b64decode(made["b64_json"]).startswith(_PNG):
            raise NoAnswerError(f"{self.url} answered with something that is no picture")
        return took


def _said(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
