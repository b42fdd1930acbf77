"""What the back end asks of a Kubernetes API: an answer or a stream of lines, by path, in plain JSON values.

So every kind of object is asked for alike. Knows nothing of jobs, nor of how a cluster is reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from calotype.launch.backend import LaunchError


class RefusedError(LaunchError):
    """The API answered, and the answer was no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the Kubernetes API refused ({status} {reason}): {message}")
        self.status, self.reason, self.message = status, reason, message


class LostError(LaunchError):
    """A connection that ended before it should have, or was never there."""


class Cluster(Protocol):
    """What the back end asks of an API."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]: ...

    def lines(self, path: str, query: Mapping[str, str | int]) -> Iterator[str]:
        """Of an answer as they come; LostError when the connection breaks."""
        ...
