"""Where deployments are kept, and which of them run. Knows nothing of how they are started."""

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
_LETTING_GO_S = 2.0
"""What a server that has been killed takes at most to let go of its place."""
_LOOK_EVERY_S = 0.02
Kept = TypeVar("Kept", bound=BaseModel)
"""What a file of a deployment holds."""


class StateDiskFullError(UnavailableError, DiskFullError):
    """The disk that holds a deployment's folder has no space left."""

    exit_code = DiskFullError.exit_code


class Endpoint(BaseModel):
    """A deployment that answers, or did when its machine was switched off."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)

    pid: int
    born: int
    """When the process was started, in the kernel's ticks: another that got its number has another."""
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
        """What people have to know about damaged databases of its queue."""
        return damage_notices(self.queue, with_paths=True)

    def plan(self) -> DeploymentConfig:
        """What it serves."""
        try:
            return DeploymentConfig.model_validate_json((self.folder / "plan.json").read_bytes())
        except FileNotFoundError:
            raise NotFoundError(f"{self.folder} holds no deployment: it has no plan.json") from None
        except ValidationError as error:
            raise NotFoundError(
                f"{self.folder / 'plan.json'} cannot be read: {error}; deploy it again and say its models: "
                f"`calotype deploy MODEL --name {self.name}`"
            ) from None

    def keep_plan(self, plan: DeploymentConfig) -> None:
        self._make_folder()
        self.write("plan.json", plan)

    @contextmanager
    def trying(self, plan: DeploymentConfig) -> Iterator[Callable[[], None]]:
        """Keep this plan; put back the one before it unless the answer is called, which says that it works.

        So a start that fails leaves a deployment as it was. Only while the place is held.
        """
        before = self._plan_bytes()
        works = False

        def confirm() -> None:
            nonlocal works
            works = True

        self.keep_plan(plan)
        try:
            yield confirm
        finally:
            if not works and before is not None:
                with self._refusals(), atomic_write(self.folder / "plan.json") as file:
                    file.write(before)

    def _plan_bytes(self) -> bytes | None:
        try:
            return (self.folder / "plan.json").read_bytes()
        except OSError:
            return None

    @contextmanager
    def held(self) -> Iterator[int]:
        """Nobody else starts, serves or removes it meanwhile: whoever holds this descriptor does.

        A process that inherits the descriptor goes on holding the place when this one has let go of it.
        """
        self._make_folder()
        with self._refusals():
            descriptor = os.open(self.folder / "place.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        end = time.monotonic() + _LETTING_GO_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.running() is not None or time.monotonic() > end:
                    raise RequestError([Problem("name", self._taken, self.name)]) from None
            else:
                return
            # There is no waiting for a lock with an end but this.
            time.sleep(_LOOK_EVERY_S)

    def check_free(self) -> None:
        """Refuse a place whose deployment runs: its plan is not to be written over."""
        if self.running() is not None:
            raise RequestError([Problem("name", self._taken, self.name)])

    @property
    def _taken(self) -> str:
        how = "runs already" if self.running() is not None else "is being started or stopped right now"
        return f"{self.name!r} {how}; `calotype undeploy {self.name}` first, or choose another name"

    def _make_folder(self) -> None:
        with self._refusals():
            # What it serves may hold a way in: other users of the machine need not know.
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def running(self) -> Endpoint | None:
        """How it is reached; None if it does not run."""
        found = self.read("running.json", Endpoint)
        return found if found is not None and found.alive else None

    def keep_running(self, running: Endpoint) -> None:
        # A server that was killed while it wrote this has left a part of it.
        for part in self.folder.glob(".running.json.*.part"):
            part.unlink(missing_ok=True)
        self.write("running.json", running)

    def forget_running(self) -> None:
        with self._refusals():
            (self.folder / "running.json").unlink(missing_ok=True)

    def read(self, name: str, kind: type[Kept]) -> Kept | None:
        """What one of its files says; None where it says nothing that can be understood."""
        try:
            return kind.model_validate_json((self.folder / name).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, name: str, value: BaseModel) -> None:
        with self._refusals(), atomic_write(self.folder / name) as file:
            file.write(value.model_dump_json(indent=2).encode() + b"\n")

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = StateDiskFullError if error.errno in DISK_FULL_CODES else UnavailableError
            raise kind(
                f"{self.folder} cannot be written: {error.strerror or error}; its disk must have room and be "
                "writable; put that right, or set CALOTYPE_STATE to another folder"
            ) from error


def deployments_dir() -> Path:
    """$CALOTYPE_STATE/deployments, or the same under the user's state directory."""
    return state_dir() / "deployments"


def deployment_dir(name: str) -> DeploymentDir:
    """Where the deployment of this name is or would be."""
    return DeploymentDir(deployments_dir() / check_name("name", name).replace(os.sep, "_"))


def all_deployment_dirs() -> Sequence[DeploymentDir]:
    """Every deployment there is, running or not."""
    folder = deployments_dir()
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        (DeploymentDir(each) for each in found if (each / "plan.json").is_file()), key=lambda p: p.name
    )


def known_deployment(name: str) -> DeploymentDir:
    """The place of a deployment that exists."""
    place = deployment_dir(name)
    if not (place.folder / "plan.json").is_file():
        names = [each.name for each in all_deployment_dirs()]
        raise NotFoundError(
            f"no deployment {name!r}; start one with `calotype deploy`; {did_you_mean(name, names)}"
        )
    return place


def running_deployment(name: str) -> tuple[DeploymentDir, Endpoint]:
    """A deployment that runs."""
    place = known_deployment(name)
    running = place.running()
    if running is None:
        raise NotFoundError(
            f"deployment {name!r} does not run; `calotype deploy --name {name}` goes on with its queue, "
            f"`calotype logs {name}` says how it ended"
        )
    return place, running
