"""Stores deployments in folders and finds them by name."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from calotype.core.errors import (
    DISK_FULL_CODES,
    DiskFullError,
    NotFoundError,
    Problem,
    RequestError,
    did_you_mean,
)
from calotype.core.paths import atomic_write, check_name, state_dir
from calotype.core.process import process_start_time
from calotype.serve.lifecycle.config import DeploymentConfig
from calotype.serve.queue.replacement import damage_notices
from calotype.serve.service import UnavailableError

DEFAULT_NAME = "calotype"
_LOCK_TIMEOUT_S = 2.0
"""The longest time that a killed server takes to release its lock."""
_RETRY_INTERVAL_S = 0.02
FileModel = TypeVar("FileModel", bound=BaseModel)
"""The model of a deployment's file."""


class StateDiskFullError(UnavailableError, DiskFullError):
    """The disk that holds a deployment's folder is full."""

    exit_code = DiskFullError.exit_code


class Endpoint(BaseModel):
    """Where a deployment is reached, and its process, which may have ended without removing this."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    pid: int
    born: int
    """Start time of the process in kernel ticks, which tells it from a later process with the same id."""
    http: str
    grpc: str | None

    @property
    def alive(self) -> bool:
        return process_start_time(self.pid) == self.born


@dataclass(frozen=True)
class DeploymentDir:
    """One deployment's folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def queue(self) -> Path:
        return self.folder / "queue"

    def notices(self) -> tuple[str, ...]:
        """Notices about damaged databases of its queue."""
        return damage_notices(self.queue, with_paths=True)

    def plan(self) -> DeploymentConfig:
        """Its configuration."""
        try:
            return DeploymentConfig.model_validate_json((self.folder / "plan.json").read_bytes())
        except FileNotFoundError:
            raise NotFoundError(f"{self.folder} holds no deployment: it has no plan.json") from None
        except ValidationError as error:
            raise NotFoundError(
                f"{self.folder / 'plan.json'} cannot be read: {error}; deploy it again with its models: "
                f"`calotype deploy MODEL --name {self.name}`"
            ) from None

    def keep_plan(self, plan: DeploymentConfig) -> None:
        self._make_folder()
        self.write("plan.json", plan)

    @contextmanager
    def trying(self, plan: DeploymentConfig) -> Iterator[Callable[[], None]]:
        """Store this plan; restore the earlier one at the end unless the yielded function was called.

        So a failed start leaves a deployment unchanged. Requires the lock.
        """
        before = self._plan_bytes()
        confirmed = False

        def confirm() -> None:
            nonlocal confirmed
            confirmed = True

        self.keep_plan(plan)
        try:
            yield confirm
        finally:
            if not confirmed and before is not None:
                with self._disk_errors(), atomic_write(self.folder / "plan.json") as file:
                    file.write(before)

    def _plan_bytes(self) -> bytes | None:
        try:
            return (self.folder / "plan.json").read_bytes()
        except OSError:
            return None

    @contextmanager
    def held(self) -> Iterator[int]:
        """Lock the folder against processes that start, serve or remove it; yields the lock's descriptor.

        A process that inherits the descriptor still holds the lock when this one has closed it.
        """
        self._make_folder()
        with self._disk_errors():
            descriptor = os.open(self.folder / "place.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        end = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.running() is not None or time.monotonic() > end:
                    raise RequestError([Problem("name", self._taken, self.name)]) from None
            else:
                return
            # flock has no timeout.
            time.sleep(_RETRY_INTERVAL_S)

    def check_free(self) -> None:
        """Raise RequestError if the deployment runs: its plan must not be overwritten."""
        if self.running() is not None:
            raise RequestError([Problem("name", self._taken, self.name)])

    @property
    def _taken(self) -> str:
        state = "runs already" if self.running() is not None else "is being started or stopped right now"
        return f"{self.name!r} {state}; `calotype undeploy {self.name}` first, or choose another name"

    def _make_folder(self) -> None:
        with self._disk_errors():
            # The plan may hold credentials that other users of the machine must not read.
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def running(self) -> Endpoint | None:
        """Its endpoint; None if it does not run."""
        found = self.read("running.json", Endpoint)
        return found if found is not None and found.alive else None

    def keep_running(self, running: Endpoint) -> None:
        # Remove the partial file of a server that was killed while writing it.
        for part in self.folder.glob(".running.json.*.part"):
            part.unlink(missing_ok=True)
        self.write("running.json", running)

    def forget_running(self) -> None:
        with self._disk_errors():
            (self.folder / "running.json").unlink(missing_ok=True)

    def read(self, name: str, kind: type[FileModel]) -> FileModel | None:
        """The content of one of its files; None if it is missing or invalid."""
        try:
            return kind.model_validate_json((self.folder / name).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, name: str, value: BaseModel) -> None:
        with self._disk_errors(), atomic_write(self.folder / name) as file:
            file.write(value.model_dump_json(indent=2).encode() + b"\n")

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = StateDiskFullError if error.errno in DISK_FULL_CODES else UnavailableError
            raise kind(
                f"{self.folder} cannot be written: {error.strerror or error}; its disk must have space and "
                "be writable; fix that, or set CALOTYPE_STATE to another folder"
            ) from error


def deployments_dir() -> Path:
    """$CALOTYPE_STATE/deployments, or the same under the user's state directory."""
    return state_dir() / "deployments"


def deployment_dir(name: str) -> DeploymentDir:
    """The folder of the deployment of this name, which may not exist."""
    return DeploymentDir(deployments_dir() / check_name("name", name).replace(os.sep, "_"))


def all_deployment_dirs() -> Sequence[DeploymentDir]:
    """All deployments, running or not."""
    folder = deployments_dir()
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        (DeploymentDir(path) for path in found if (path / "plan.json").is_file()), key=lambda p: p.name
    )


def known_deployment(name: str) -> DeploymentDir:
    """The folder of an existing deployment."""
    directory = deployment_dir(name)
    if not (directory.folder / "plan.json").is_file():
        names = [known.name for known in all_deployment_dirs()]
        raise NotFoundError(
            f"no deployment {name!r}; start one with `calotype deploy`; {did_you_mean(name, names)}"
        )
    return directory


def running_deployment(name: str) -> tuple[DeploymentDir, Endpoint]:
    """A running deployment and its endpoint."""
    directory = known_deployment(name)
    running = directory.running()
    if running is None:
        raise NotFoundError(
            f"deployment {name!r} does not run; `calotype deploy --name {name}` continues with its queue, "
            f"`calotype logs {name}` says how it ended"
        )
    return directory, running
