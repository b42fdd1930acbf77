"""Reads and submits the jobs of a Ray cluster through Ray's own clients of its dashboard.

Converts their errors to ours, and gives every call a timeout.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from calotype.launch.backend import LaunchError

TIMEOUT_S = 60
_MAX_LISTED = 10_000
"""Limit of nodes and groups in one listing."""
_TRY_LATER = "try again later"
_T = TypeVar("_T")


class RayRefusedError(LaunchError):
    """The cluster refused; the message includes its own words."""


class RayLostError(LaunchError):
    """No answer: it is unknown whether the request arrived."""


class RayJobs:
    """The jobs of the cluster at a dashboard address; None for the one that Ray finds by itself."""

    def __init__(self, address: str | None) -> None:
        self._client = _connect(address)
        found = self.address
        if address is not None and found != address.rstrip("/"):
            which = "RAY_API_SERVER_ADDRESS" if "RAY_API_SERVER_ADDRESS" in os.environ else "RAY_ADDRESS"
            raise LaunchError(f"{which} points to {found}, but the job's cluster is {address}; unset it")

    @property
    def address(self) -> str:
        return str(self._client.get_address())

    def submit(self, job: str, entrypoint: str, folder: Path, variables: Mapping[str, str]) -> None:
        """Submit a command, which runs in a copy of the folder; submitting the same job twice is one job."""
        environment = {"working_dir": str(folder), "env_vars": dict(variables)}
        submission = {"entrypoint": entrypoint, "submission_id": job, "runtime_env": environment}
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                _call(lambda: self._client.submit_job(**submission))
            except RayLostError:
                # The request may have arrived nevertheless.
                if self.details(job) is None:
                    raise
            except RayRefusedError as error:
                # A cluster that has just started answers this, after some seconds.
                if _TRY_LATER not in str(error) or time.monotonic() > end:
                    raise
                continue
            return

    def details(self, job: str) -> Any | None:
        """Ray's details of a job; None if it does not know the job."""
        try:
            return _call(lambda: self._client.get_job_info(job))
        except RayRefusedError as error:
            if "status code 404" in str(error):
                return None
            raise

    def stop(self, job: str) -> None:
        # Ray ignores ended jobs.
        _call(lambda: self._client.stop_job(job))

    def printed(self, job: str) -> list[str]:
        text: str = _call(lambda: self._client.get_job_logs(job))
        # Split as in `followed`: only at \n, not at other line separators.
        return text.removesuffix("\n").split("\n") if text else []

    def followed(self, job: str) -> Iterator[str]:
        """Follow lines from the first to the job's end; reconnects after a lost connection."""
        seen = 0
        while True:
            with suppress(RayLostError):
                for number, line in enumerate(self._tail(job)):
                    if number >= seen:
                        seen += 1
                        yield line
                return
            # Raises if the cluster is gone; otherwise the stream is read again.
            self.details(job)

    def _tail(self, job: str) -> Iterator[str]:
        loop, rest = asyncio.new_event_loop(), ""
        pieces = self._client.tail_job_logs(job)
        try:
            while True:
                try:
                    piece = _call(lambda: _next(loop, pieces))
                except StopAsyncIteration:
                    break
                *whole, rest = (rest + piece).split("\n")
                yield from whole
            if rest:
                yield rest
        finally:
            loop.run_until_complete(pieces.aclose())
            loop.close()

    def groups(self, ray_job: str) -> list[Any]:
        """Placement groups of a running driver, the newest last."""
        from ray.util.state import list_placement_groups  # noqa: PLC0415 - as below

        found = [group for group in self._listed(list_placement_groups) if group.creator_job_id == ray_job]
        return sorted(found, key=lambda group: int(str(group.name).rpartition("#")[2] or 0))

    def nodes(self) -> list[Any]:
        """The nodes that are alive, with their resources."""
        from ray.util.state import list_nodes  # noqa: PLC0415 - as below

        return [node for node in self._listed(list_nodes) if node.state == "ALIVE"]

    def _listed(self, listing: Callable[..., list[Any]]) -> list[Any]:
        # Filtered by us: with a filter, Ray counts the filtered ones as lost.
        options = {"detail": True, "limit": _MAX_LISTED, "timeout": TIMEOUT_S}
        return _call(lambda: listing(self.address, **options))


def _next(loop: asyncio.AbstractEventLoop, pieces: AsyncIterator[str]) -> str:
    with warnings.catch_warnings():
        # Ray uses a deprecated call of aiohttp.
        warnings.simplefilter("ignore", DeprecationWarning)
        return loop.run_until_complete(anext(pieces))


def _connect(address: str | None) -> Any:
    try:
        # A large import that rendering does not need.
        from ray.job_submission import JobSubmissionClient  # noqa: PLC0415
    except ImportError as error:
        rule = f"{error.name} is missing; pip install 'calotype[cluster]', or submit the file with `ray job`"
        raise LaunchError(rule) from None
    # Silences its messages about uploads.
    for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)

    class Client(JobSubmissionClient):
        """Ray's client with a timeout; without one it waits forever."""

        def _do_request(self, *words: Any, **more: Any) -> Any:
            return super()._do_request(*words, timeout=TIMEOUT_S, **more)

    return _call(lambda: Client(address))


def _call(call: Callable[[], _T]) -> _T:
    """Call Ray's client and convert its errors to ours."""
    import requests  # noqa: PLC0415 - Ray's client brings it
    from ray.exceptions import AuthenticationError  # noqa: PLC0415
    from ray.util.state.exception import RayStateApiException  # noqa: PLC0415

    try:
        return call()
    except AuthenticationError as error:
        raise RayRefusedError(f"Ray refused: {error}") from None
    except (requests.exceptions.RequestException, ConnectionError, OSError) as error:
        rule = "start one with `ray start --head`, or set ray.address to http://HEAD:8265"
        raise RayLostError(f"no Ray dashboard answers: {str(error).rstrip('.')}; {rule}") from None
    except (RuntimeError, RayStateApiException) as error:
        words = str(error).strip().splitlines()
        if "WebSocket" in words[0]:
            raise RayLostError(words[0]) from None
        raise RayRefusedError(f"Ray refused: {words[0]}" + (f" … {words[-1]}" if words[1:] else "")) from None
