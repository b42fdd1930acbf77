"""The part of a Kubernetes API that the backend uses: a response or a stream of lines by path, in plain JSON.

Every kind of object is read the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from calotype.launch.backend import LaunchError


class RefusedError(LaunchError):
    """The API refused the request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the Kubernetes API refused ({status} {reason}): {message}")
        self.status, self.reason, self.message = status, reason, message


class LostError(LaunchError):
    """The connection failed, or broke before its end."""


class Cluster(Protocol):
    """The requests that the backend makes to a cluster."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]: ...

    def lines(self, path: str, query: Mapping[str, str | int]) -> Iterator[str]:
        """Stream the lines of a response; raises LostError when the connection breaks."""
        ...
