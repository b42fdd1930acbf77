"""Asking a deployment for pictures from Python, over gRPC. Found by name, or by an address.

    generator = calotype.client("sd_deploy")
    generator.query("a red apple").images[0].save("apple.png")

Knows nothing of how deployments are started.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc
from PIL import Image

from calotype.core.errors import CalotypeError, DoesNotFitError, NotFoundError, Problem, RequestError
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc.calotype_pb2_grpc import CalotypeStub
from calotype.serve.lifecycle.registry import running_deployment
from calotype.serve.log_format import REQUEST_ID
from calotype.serve.request_parsing import parse_submission, rename_error_fields
from calotype.serve.service import DamagedPictureError, QueueFullError, UnavailableError
from calotype.serve.tls import identity_at
from calotype.spec.generate_request import GenerateRequest

API_KEY = "CALOTYPE_API_KEY"
NO_LIMIT = -1
PING_EVERY_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 10_000
"""How long the other machine may leave unconfirmed that anything reached it."""
PING_TIMEOUT_MS = 60_000
"""What stands between here and there may confirm everything and hand on nothing, and then only an unanswered
ping tells; but on a slow line the answer waits behind the pictures."""

ImageArgument = bytes | str | Path | Image.Image
"""A picture to start from: the bytes of a file, its path, or an image."""


class DeploymentError(CalotypeError):
    """A deployment that answered with a failure of its own."""


@dataclass(frozen=True)
class Progress:
    """How far a query is."""

    state: str
    position: int | None
    steps_done: int
    steps_total: int
    preview: Image.Image | None


@dataclass(frozen=True)
class Answer:
    """Finished pictures."""

    job_id: str
    files: tuple[bytes, ...]
    """PNG files, which hold the whole request."""

    @property
    def images(self) -> list[Image.Image]:
        return [Image.open(io.BytesIO(data)) for data in self.files]


class Client:
    """One deployment. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        certificate: bytes | None = None,
        certified_name: str | None = None,
    ) -> None:
        """`address` is HOST:PORT of its gRPC interface; `certificate` the PEM it is trusted by, for TLS.

        `certified_name` is the server's name in that, if it is not HOST.
        """
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", NO_LIMIT),
            ("grpc.max_send_message_length", NO_LIMIT),
            # Nothing else tells a network that was lost from a job that takes long.
            ("grpc.keepalive_time_ms", PING_EVERY_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if certified_name is not None:
            options.append(("grpc.ssl_target_name_override", certified_name))
        if certificate is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            credentials = grpc.ssl_channel_credentials(certificate)
            self._channel = grpc.secure_channel(address, credentials, options)
        self._stub = CalotypeStub(self._channel)
        key = api_key or os.environ.get(API_KEY)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def query(
        self,
        prompt: str | GenerateRequest,
        *,
        image: ImageArgument | None = None,
        mask: ImageArgument | None = None,
        model: str | None = None,
        preset: str | None = None,
        priority: int | None = None,
        deadline_s: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        previews: bool = False,
        **knobs: Any,
    ) -> Answer:
        """Pictures for a prompt, with the knobs of GenerateRequest by name. Ctrl-C cancels the job.

        `deadline_s` is the time it has from now on; it fails when that is over.
        """
        how = {"model": model, "preset": preset, "priority": priority, "deadline_s": deadline_s}
        submission = _submission(prompt, image, mask, knobs, how)
        call = self._stub.GenerateStream(
            pb.GenerateStreamRequest(submission=submission, previews=previews), metadata=self._metadata
        )
        last: pb.Progress | None = None
        with _errors_named():
            try:
                for last in call:
                    if on_progress is not None:
                        on_progress(_progress(last))
            finally:
                call.cancel()
        assert last is not None, "a stream that ends well has an end"
        return Answer(last.job.id, tuple(last.pictures))

    def submit(
        self,
        prompt: str | GenerateRequest,
        *,
        image: ImageArgument | None = None,
        mask: ImageArgument | None = None,
        model: str | None = None,
        preset: str | None = None,
        priority: int | None = None,
        deadline_s: float | None = None,
        idempotency_key: str | None = None,
        **knobs: Any,
    ) -> str:
        """Hand in a job that outlives this process; its id."""
        how = {"model": model, "preset": preset, "priority": priority, "deadline_s": deadline_s}
        submission = _submission(prompt, image, mask, knobs, {**how, "idempotency_key": idempotency_key})
        with _errors_named():
            return self._stub.Submit(submission, metadata=self._metadata).id

    def job(self, job_id: str) -> pb.Job:
        """A job as it stands."""
        with _errors_named():
            return self._stub.Get(pb.JobId(id=job_id), metadata=self._metadata)

    def jobs(self, limit: int = 50) -> Sequence[pb.Job]:
        """The newest jobs first."""
        with _errors_named():
            return list(self._stub.List(pb.ListRequest(limit=limit), metadata=self._metadata).jobs)

    def cancel(self, job_id: str) -> None:
        """At once while it is queued, at the next step while it runs."""
        with _errors_named():
            self._stub.Cancel(pb.JobId(id=job_id), metadata=self._metadata)

    def picture(self, job_id: str, index: int = 0) -> Image.Image:
        """A finished picture of a job."""
        with _errors_named():
            found = self._stub.Picture(pb.PictureRequest(job_id=job_id, index=index), metadata=self._metadata)
        return Image.open(io.BytesIO(found.png))

    def models(self) -> Sequence[pb.LoadedModel]:
        """The models that are loaded."""
        with _errors_named():
            return list(self._stub.Models(pb.ModelsRequest(), metadata=self._metadata).models)

    def load(self, model: str) -> Sequence[pb.LoadedModel]:
        """Have a model ready; those that were not used for longest make room. For admins, where keys are."""
        with _errors_named():
            return list(self._stub.Load(pb.ModelName(model=model), metadata=self._metadata).models)

    def unload(self, model: str) -> Sequence[pb.LoadedModel]:
        """Let a model go once no job uses it. For admins, where there are keys."""
        with _errors_named():
            return list(self._stub.Unload(pb.ModelName(model=model), metadata=self._metadata).models)

    def status(self) -> pb.DeploymentStatus:
        """The deployment as it stands."""
        with _errors_named():
            return self._stub.Status(pb.StatusRequest(), metadata=self._metadata)


def client(name: str, *, api_key: str | None = None, certificate: str | Path | None = None) -> Client:
    """The deployment of this name on this machine, or the one whose gRPC interface is at HOST:PORT.

    `certificate` is a PEM file that one elsewhere is trusted by, if it speaks TLS.
    """
    if ":" in name:
        trusted = None if certificate is None else _bytes_of("certificate", certificate)
        return Client(name, api_key=api_key, certificate=trusted)
    place, running = running_deployment(name)
    if running.grpc is None:
        raise NotFoundError(f"deployment {name!r} has no gRPC interface; ask it over HTTP at {running.http}")
    own = place.plan().reached.tls_certificate
    if own is None:
        return Client(running.grpc, api_key=api_key)
    known = identity_at(running.http, own)
    return Client(running.grpc, api_key=api_key, certificate=known.certificate, certified_name=known.name)


def _submission(
    prompt: str | GenerateRequest,
    image: ImageArgument | None,
    mask: ImageArgument | None,
    knobs: Mapping[str, Any],
    how: Mapping[str, Any],
) -> pb.Submission:
    if isinstance(prompt, GenerateRequest):
        values = {name: value for name, value in prompt.as_dict().items() if value is not None}
    else:
        values = {"prompt": prompt}
    values = {name: value for name, value in {**values, **knobs}.items() if value is not None}
    how = {name: value for name, value in how.items() if value is not None}
    try:
        made = pb.Submission(request=pb.GenerateRequest(**values), **how)
    except (TypeError, ValueError) as error:
        # What the wire has no way to say breaks a rule of jobs, which are told by name and all at once.
        with rename_error_fields({}):
            parse_submission({**how, "request": values})
        raise RequestError([Problem("request", f"cannot be sent: {error}")]) from None
    for field, given in (("image", image), ("mask", mask)):
        if given is not None:
            setattr(made, field, _bytes_of(field, given))
    return made


def _bytes_of(field: str, given: ImageArgument) -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, str | Path):
        try:
            return Path(given).read_bytes()
        except OSError as error:
            raise NotFoundError(f"{field}: {given} cannot be read: {error.strerror or error}") from None
    buffer = io.BytesIO()
    given.save(buffer, "PNG")
    return buffer.getvalue()


def _progress(message: pb.Progress) -> Progress:
    job = message.job
    preview = Image.open(io.BytesIO(message.preview)) if message.HasField("preview") else None
    position = job.position if job.HasField("position") else None
    state = pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
    return Progress(state, position, job.steps_done, job.steps_total, preview)


@contextmanager
def _errors_named() -> Iterator[None]:
    """A call's failure as the error it was on the other side."""
    try:
        yield
    except grpc.RpcError as error:
        raise _named(error) from None


def _named(error: Any) -> CalotypeError:
    code, said = error.code(), error.details() or ""
    trailing = dict(error.trailing_metadata() or ())
    if code == grpc.StatusCode.INVALID_ARGUMENT and "calotype-problems-bin" in trailing:
        problems = pb.Problems.FromString(trailing["calotype-problems-bin"]).problems
        return RequestError([Problem(each.field, each.rule) for each in problems])
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "retry-after" in trailing:
        return QueueFullError(said, float(trailing["retry-after"]))
    kinds: dict[grpc.StatusCode, type[CalotypeError]] = {
        grpc.StatusCode.NOT_FOUND: NotFoundError,
        grpc.StatusCode.UNAVAILABLE: UnavailableError,
        grpc.StatusCode.FAILED_PRECONDITION: DoesNotFitError,
        grpc.StatusCode.DATA_LOSS: DamagedPictureError,
    }
    if code == grpc.StatusCode.UNAVAILABLE and REQUEST_ID not in trailing:
        # Whatever a deployment refuses by itself has the request's id.
        said = f"the deployment cannot be reached, or the connection to it was lost: {said}"
    if code == grpc.StatusCode.UNAUTHENTICATED:
        said += f"; here it is given as `api_key`, with --api-key, or in ${API_KEY}"
    return kinds.get(code, DeploymentError)(said or str(code))
