"""A gRPC client of a deployment, response by name or by address.

generator = calotype.client("sd_deploy")
generator.query("a red apple").images[0].save("apple.png")
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
"""How long the other machine may leave sent data unacknowledged."""
PING_TIMEOUT_MS = 60_000
"""How long a ping may stay unanswered. A proxy may acknowledge data and forward none, which only an
unanswered ping shows; but on a slow line the answer waits behind the images."""

ImageArgument = bytes | str | Path | Image.Image
"""An input image: the bytes of a file, its path, or an image."""


class DeploymentError(CalotypeError):
    """The deployment failed to answer a call."""


@dataclass(frozen=True)
class Progress:
    """The progress of a query."""

    state: str
    position: int | None
    steps_done: int
    steps_total: int
    preview: Image.Image | None


@dataclass(frozen=True)
class Answer:
    """Finished images."""

    job_id: str
    files: tuple[bytes, ...]
    """PNG files, whose metadata holds the whole request."""

    @property
    def images(self) -> list[Image.Image]:
        return [Image.open(io.BytesIO(data)) for data in self.files]


class Client:
    """A connection to one deployment. Use it as a context manager, or `close` it."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        certificate: bytes | None = None,
        certified_name: str | None = None,
    ) -> None:
        """`address` is HOST:PORT of its gRPC interface; `certificate` is the PEM to trust, which enables TLS.

        `certified_name` is the server's name in the certificate, if it is not HOST.
        """
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", NO_LIMIT),
            ("grpc.max_send_message_length", NO_LIMIT),
            # Only pings tell a lost network from a job that takes long.
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
        """Generate images for a prompt, with the fields of GenerateRequest by name. Ctrl-C cancels the job.

        `deadline_s` is the time that the job has from now on; it fails afterwards.
        """
        options = {"model": model, "preset": preset, "priority": priority, "deadline_s": deadline_s}
        submission = _submission(prompt, image, mask, knobs, options)
        call = self._stub.GenerateStream(
            pb.GenerateStreamRequest(submission=submission, previews=previews), metadata=self._metadata
        )
        last: pb.Progress | None = None
        with _raise_server_errors():
            try:
                for last in call:
                    if on_progress is not None:
                        on_progress(_progress(last))
            finally:
                call.cancel()
        assert last is not None, "a successful stream ends with the job"
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
        """Submit a job that outlives this process; returns its id."""
        options = {"model": model, "preset": preset, "priority": priority, "deadline_s": deadline_s}
        submission = _submission(prompt, image, mask, knobs, {**options, "idempotency_key": idempotency_key})
        with _raise_server_errors():
            return self._stub.Submit(submission, metadata=self._metadata).id

    def job(self, job_id: str) -> pb.Job:
        """The current state of a job."""
        with _raise_server_errors():
            return self._stub.Get(pb.JobId(id=job_id), metadata=self._metadata)

    def jobs(self, limit: int = 50) -> Sequence[pb.Job]:
        """The newest jobs first."""
        with _raise_server_errors():
            return list(self._stub.List(pb.ListRequest(limit=limit), metadata=self._metadata).jobs)

    def cancel(self, job_id: str) -> None:
        """Cancel a job: at once while it is queued, at the next step while it runs."""
        with _raise_server_errors():
            self._stub.Cancel(pb.JobId(id=job_id), metadata=self._metadata)

    def picture(self, job_id: str, index: int = 0) -> Image.Image:
        """A finished image of a job."""
        with _raise_server_errors():
            response = self._stub.Picture(
                pb.PictureRequest(job_id=job_id, index=index), metadata=self._metadata
            )
        return Image.open(io.BytesIO(response.png))

    def models(self) -> Sequence[pb.LoadedModel]:
        """The loaded models."""
        with _raise_server_errors():
            return list(self._stub.Models(pb.ModelsRequest(), metadata=self._metadata).models)

    def load(self, model: str) -> Sequence[pb.LoadedModel]:
        """Load a model; the least recently used ones make room. Needs an admin's key where there are keys."""
        with _raise_server_errors():
            return list(self._stub.Load(pb.ModelName(model=model), metadata=self._metadata).models)

    def unload(self, model: str) -> Sequence[pb.LoadedModel]:
        """Unload a model once no job uses it. Needs an admin's key where there are keys."""
        with _raise_server_errors():
            return list(self._stub.Unload(pb.ModelName(model=model), metadata=self._metadata).models)

    def status(self) -> pb.DeploymentStatus:
        """The current state of the deployment."""
        with _raise_server_errors():
            return self._stub.Status(pb.StatusRequest(), metadata=self._metadata)


def client(name: str, *, api_key: str | None = None, certificate: str | Path | None = None) -> Client:
    """A client of the deployment of this name on this machine, or of a gRPC interface at HOST:PORT.

    `certificate` is a PEM file to trust for HOST:PORT, which enables TLS.
    """
    if ":" in name:
        trusted = None if certificate is None else _bytes_of("certificate", certificate)
        return Client(name, api_key=api_key, certificate=trusted)
    place, running = running_deployment(name)
    if running.grpc is None:
        raise NotFoundError(f"deployment {name!r} has no gRPC interface; use HTTP at {running.http}")
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
    options: Mapping[str, Any],
) -> pb.Submission:
    if isinstance(prompt, GenerateRequest):
        values = {name: value for name, value in prompt.as_dict().items() if value is not None}
    else:
        values = {"prompt": prompt}
    values = {name: value for name, value in {**values, **knobs}.items() if value is not None}
    options = {name: value for name, value in options.items() if value is not None}
    try:
        message = pb.Submission(request=pb.GenerateRequest(**values), **options)
    except (TypeError, ValueError) as error:
        # A value that protobuf cannot hold breaks a rule of requests; validation lists all of these by name.
        with rename_error_fields({}):
            parse_submission({**options, "request": values})
        raise RequestError([Problem("request", f"cannot be sent: {error}")]) from None
    for field, given in (("image", image), ("mask", mask)):
        if given is not None:
            setattr(message, field, _bytes_of(field, given))
    return message


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
def _raise_server_errors() -> Iterator[None]:
    """Raise a failed call as the error that the server raised."""
    try:
        yield
    except grpc.RpcError as error:
        raise _server_error(error) from None


def _server_error(error: Any) -> CalotypeError:
    code, details = error.code(), error.details() or ""
    trailing = dict(error.trailing_metadata() or ())
    if code == grpc.StatusCode.INVALID_ARGUMENT and "calotype-problems-bin" in trailing:
        problems = pb.Problems.FromString(trailing["calotype-problems-bin"]).problems
        return RequestError([Problem(problem.field, problem.rule) for problem in problems])
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "retry-after" in trailing:
        return QueueFullError(details, float(trailing["retry-after"]))
    kinds: dict[grpc.StatusCode, type[CalotypeError]] = {
        grpc.StatusCode.NOT_FOUND: NotFoundError,
        grpc.StatusCode.UNAVAILABLE: UnavailableError,
        grpc.StatusCode.FAILED_PRECONDITION: DoesNotFitError,
        grpc.StatusCode.DATA_LOSS: DamagedPictureError,
    }
    if code == grpc.StatusCode.UNAVAILABLE and REQUEST_ID not in trailing:
        # Every error that a deployment itself returns has the request's id.
        details = f"the deployment cannot be reached, or the connection to it was lost: {details}"
    if code == grpc.StatusCode.UNAUTHENTICATED:
        details += f"; pass it as `api_key`, with --api-key, or in ${API_KEY}"
    return kinds.get(code, DeploymentError)(details or str(code))
