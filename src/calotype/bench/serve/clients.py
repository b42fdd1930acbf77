"""Sends one request over one interface and receives its images.

Every request has its own idempotency key, by which the deployment's job is found afterwards.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import grpc
import httpx

from calotype.bench.serve.load_generator import Ask, Reply
from calotype.serve.client import NO_LIMIT
from calotype.serve.grpc import calotype_pb2 as pb
from calotype.serve.grpc.calotype_pb2_grpc import CalotypeStub
from calotype.serve.tls import Identity

Interface = Literal["http", "openai", "grpc", "plain"]
INTERFACES: tuple[Interface, ...] = ("http", "openai", "grpc")
"""Interfaces of a deployment: /v1/jobs with image download, /v1/images/generations, and gRPC's Generate."""
PROMPTS = (
    "an orange heart, noto style, on a light blue background",
    "a construction worker, noto style, on a purple background",
    "a detective, twemoji style, on a pink background",
    "a cook, flat style, on an orange background",
)
_PNG = b"\x89PNG"


@dataclass(frozen=True)
class RequestTemplate:
    """The common content of all requests of a load; prompts and seeds vary."""

    request: Mapping[str, Any]
    """Values of a GenerateRequest."""
    run: str
    """Prefix of the idempotency keys."""
    timeout_s: float = 600.0
    api_key: str | None = None
    identity: Identity | None = None
    """The server's TLS identity, if it uses TLS."""

    def key(self, number: int) -> str:
        return f"{self.run}-{number}"

    def values(self, number: int) -> dict[str, Any]:
        return {**self.request, "prompt": PROMPTS[number % len(PROMPTS)], "seed": number}

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@asynccontextmanager
async def open_client(interface: Interface, address: str, template: RequestTemplate) -> AsyncIterator[Ask]:
    """Open a client; `address` is a URL, or HOST:PORT for gRPC."""
    if interface == "grpc":
        async with _channel(address, template.identity) as channel:
            yield _timed(_GrpcClient(CalotypeStub(channel), template).ask, template.timeout_s)
        return
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = template.headers
    # Proxies of the environment must not apply here; `_timed` sets the only timeout.
    async with httpx.AsyncClient(
        base_url=address,
        limits=limits,
        timeout=None,  # noqa: S113 - see above
        headers=headers,
        verify=template.identity.context if template.identity else True,
        trust_env=False,
    ) as client:
        sender = _HttpClient(client, template)
        senders = {"http": sender.job, "openai": sender.openai, "plain": sender.plain}
        yield _timed(senders[interface], template.timeout_s)


def _channel(address: str, identity: Identity | None) -> grpc.aio.Channel:
    options: list[tuple[str, int | str]] = [("grpc.max_receive_message_length", NO_LIMIT)]
    if identity is None:
        return grpc.aio.insecure_channel(address, options)
    if identity.name is not None:
        options.append(("grpc.ssl_target_name_override", identity.name))
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(identity.certificate), options)


def _timed(ask: Ask, timeout_s: float) -> Ask:
    """Add a timeout, and map every error to the kind of its reply."""

    async def timed(number: int) -> Reply:
        try:
            async with asyncio.timeout(timeout_s):
                return await ask(number)
        except TimeoutError:
            return Reply("timeout")
        except httpx.HTTPStatusError as error:
            return Reply(_error_code(error.response))
        except httpx.HTTPError as error:
            return Reply(f"connection: {type(error).__name__}")
        except grpc.aio.AioRpcError as error:
            return Reply(error.code().name.lower())

    return timed


def _error_code(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return f"status {response.status_code}"


class _HttpClient:
    def __init__(self, client: httpx.AsyncClient, template: RequestTemplate) -> None:
        self._client, self._template = client, template

    async def _post(self, path: str, number: int, body: Mapping[str, Any]) -> httpx.Response:
        key = {"Idempotency-Key": self._template.key(number)}
        answer = await self._client.post(path, json=body, headers=key)
        return answer.raise_for_status()

    async def job(self, number: int) -> Reply:
        body = {"request": self._template.values(number)}
        job = (await self._post("/v1/jobs?wait=true", number, body)).json()
        if job["state"] != "done":
            return Reply((job["failure"] or {}).get("kind", job["state"]), job["id"])
        for index in range(len(job["pictures"])):
            picture = await self._client.get(f"/v1/jobs/{job['id']}/pictures/{index}")
            if not picture.raise_for_status().content.startswith(_PNG):
                return Reply("no picture", job["id"])
        return Reply(job_id=job["id"], pictures=len(job["pictures"]))

    async def openai(self, number: int) -> Reply:
        values = self._template.values(number)
        width, height = values.pop("width", None), values.pop("height", None)
        size = {"size": f"{width}x{height}"} if width and height else {}
        count = values.pop("count", 1)
        body = {**values, **size, "n": count, "response_format": "b64_json"}
        images = (await self._post("/v1/images/generations", number, body)).json()["data"]
        return _checked([base64.b64decode(one["b64_json"]) for one in images])

    async def plain(self, number: int) -> Reply:
        answer = await self._post("/generate", number, self._template.values(number))
        return _checked([answer.content])


class _GrpcClient:
    def __init__(self, stub: CalotypeStub, template: RequestTemplate) -> None:
        self._template = template
        self._metadata = tuple(template.headers.items())
        self._generate: Callable[..., Any] = stub.Generate

    async def ask(self, number: int) -> Reply:
        submission = pb.Submission(
            request=pb.GenerateRequest(**self._template.values(number)),
            idempotency_key=self._template.key(number),
        )
        result = await self._generate(submission, metadata=self._metadata)
        return _checked(list(result.pictures), result.job.id)


def _checked(files: list[bytes], job_id: str | None = None) -> Reply:
    if not files or not all(data.startswith(_PNG) for data in files):
        return Reply("no picture", job_id)
    return Reply(job_id=job_id, pictures=len(files))
