"""The jobs of a Ray cluster as its dashboard tells of them, through Ray's own clients.

Errors of theirs become ours, and no question waits for ever. Knows nothing of specs and drivers.
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
_MOST = 10_000
"""Of nodes and groups that Ray lists at once."""
_LATER = "try again later"
_T = TypeVar("_T")


class RayRefusedError(LaunchError):
    """What the cluster answered instead; the message holds its words."""


class RayLostError(LaunchError):
    """Nobody answered: whether the question arrived is not known."""


class RayJobs:
    """The jobs of the cluster at an address: HTTP of its dashboard; what Ray finds by itself if None."""

    def __init__(self, address: str | None) -> None:
        self._client = _connected(address)
        found = self.address
        if address is not None and found != address.rstrip("/"):
            which = "RAY_API_SERVER_ADDRESS" if "RAY_API_SERVER_ADDRESS" in os.environ else "RAY_ADDRESS"
            raise LaunchError(f"{which} leads to {found}, and the job's cluster is {address}; unset it")

    @property
    def address(self) -> str:
        return str(self._client.get_address())

    def submit(self, job: str, entrypoint: str, folder: Path, variables: Mapping[str, str]) -> None:
        """Hand in a command, which is run in a copy of the folder; twice the same job is one."""
        environment = {"working_dir": str(folder), "env_vars": dict(variables)}
        asked = {"entrypoint": entrypoint, "submission_id": job, "runtime_env": environment}
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                _told(lambda: self._client.submit_job(**asked))
            except RayLostError:
                # It may have arrived all the same.
                if self.details(job) is None:
                    raise
            except RayRefusedError as error:
                # A cluster that has just been started says so, some seconds after it was asked.
                if _LATER not in str(error) or time.monotonic() > end:
                    raise
                continue
            return

    def details(self, job: str) -> Any | None:
        """What Ray knows of a job; None where it knows none."""
        try:
            return _told(lambda: self._client.get_job_info(job))
        except RayRefusedError as error:
            if "status code 404" in str(error):
                return None
            raise

    def stop(self, job: str) -> None:
        # One that is over is left alone by Ray.
        _told(lambda: self._client.stop_job(job))

    def printed(self, job: str) -> list[str]:
        text: str = _told(lambda: self._client.get_job_logs(job))
        # As they are followed: other characters that end lines stay inside them.
        return text.removesuffix("\n").split("\n") if text else []

    def followed(self, job: str) -> Iterator[str]:
        """Lines from the first on as they come, up to the job's end; a lost connection is made again."""
        seen = 0
        while True:
            with suppress(RayLostError):
                for number, line in enumerate(self._tail(job)):
                    if number >= seen:
                        seen += 1
                        yield line
                return
            # Whoever is there says whether there is more to come.
            self.details(job)

    def _tail(self, job: str) -> Iterator[str]:
        loop, rest = asyncio.new_event_loop(), ""
        pieces = self._client.tail_job_logs(job)
        try:
            while True:
                try:
                    piece = _told(lambda: _next(loop, pieces))
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
        """Sets of places on nodes that a running driver has asked for, the newest last."""
        from ray.util.state import list_placement_groups  # noqa: PLC0415 - as below

        found = [group for group in self._listed(list_placement_groups) if group.creator_job_id == ray_job]
        return sorted(found, key=lambda group: int(str(group.name).rpartition("#")[2] or 0))

    def nodes(self) -> list[Any]:
        """The nodes that are alive, with what they have."""
        from ray.util.state import list_nodes  # noqa: PLC0415 - as below

        return [node for node in self._listed(list_nodes) if node.state == "ALIVE"]

    def _listed(self, listing: Callable[..., list[Any]]) -> list[Any]:
        # Chosen from by us: asked to leave some out, Ray takes those for lost on the way.
        how = {"detail": True, "limit": _MOST, "timeout": TIMEOUT_S}
        return _told(lambda: listing(self.address, **how))


def _next(loop: asyncio.AbstractEventLoop, pieces: AsyncIterator[str]) -> str:
    with warnings.catch_warnings():
        # Ray asks aiohttp in an old way.
        warnings.simplefilter("ignore", DeprecationWarning)
        return loop.run_until_complete(anext(pieces))


def _connected(address: str | None) -> Any:
    try:
        # Large, and of use to nobody who only renders.
        from ray.job_submission import JobSubmissionClient  # noqa: PLC0415
    except ImportError as error:
        rule = f"{error.name} is missing; pip install 'calotype[cluster]', or hand the file in with `ray job`"
        raise LaunchError(rule) from None
    # What it tells of uploads nobody has asked for.
    for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)

    class Client(JobSubmissionClient):
        """Ray's, with an end to its patience: left alone it waits for ever."""

        def _do_request(self, *words: Any, **more: Any) -> Any:
            return super()._do_request(*words, timeout=TIMEOUT_S, **more)

    return _told(lambda: Client(address))


def _told(ask: Callable[[], _T]) -> _T:
    """What Ray's client answers, its errors as ours."""
    import requests  # noqa: PLC0415 - Ray's client brings it
    from ray.exceptions import AuthenticationError  # noqa: PLC0415
    from ray.util.state.exception import RayStateApiException  # noqa: PLC0415

    try:
        return ask()
    except AuthenticationError as error:
        raise RayRefusedError(f"Ray refused: {error}") from None
    except (requests.exceptions.RequestException, ConnectionError, OSError) as error:
        rule = "start one with `ray start --head`, or set ray.address to http://HEAD:8265"
        raise RayLostError(
            f"no dashboard of a Ray cluster answers: {str(error).rstrip('.')}; {rule}"
        ) from None
    except (RuntimeError, RayStateApiException) as error:
        words = str(error).strip().splitlines()
        if "WebSocket" in words[0]:
            raise RayLostError(words[0]) from None
        raise RayRefusedError(f"Ray refused: {words[0]}" + (f" … {words[-1]}" if words[1:] else "")) from None
