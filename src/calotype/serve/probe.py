"""Probes a server over HTTP as any client would: whether it is ready, and how long an image takes."""

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
    """The server gave no answer or a wrong one."""


@dataclass(frozen=True)
class HttpProbe:
    """A server at an HTTP address."""

    url: str
    api_key: str | None = None
    timeout_s: float = 600.0

    def wait_ready(self, limit_s: float) -> None:
        """Wait until the server is ready; raises NoAnswerError after `limit_s`."""
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
        """Seconds from the request for an image to its arrival."""
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
            raise NoAnswerError(f"{self.url} answered {answer.status_code}: {_error_message(answer)}")
        (item,) = answer.json()["data"]
        if not base64.b64decode(item["b64_json"]).startswith(_PNG):
            raise NoAnswerError(f"{self.url} answered with something that is no image")
        return took


def _error_message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
