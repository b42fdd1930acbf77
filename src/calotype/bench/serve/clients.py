"""One request over one interface, up to the picture in hand. Knows nothing of when.

Every request has an idempotency key of its own: a deployment can be asked afterwards what became of it.
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
"""Of a deployment: /v1/jobs and then the picture, /v1/images/generations, gRPC's Generate."""
PROMPTS = (
    "an orange heart, noto style, on a light blue background",
    "a construction worker, noto style, on a purple background",
    "a detective, twemoji style, on a pink background",
    "a cook, flat style, on an orange background",
)
_PNG = b"\x89PNG"


@dataclass(frozen=True)
class Response:
    """What every request of a load asks for; prompts and seeds vary."""

    request: Mapping[str, Any]
    """Values of a GenerateRequest."""
    run: str
    """Idempotency keys begin with it."""
    timeout_s: float = 600.0
    api_key: str | None = None
    identity: Identity | None = None
    """Of the server, where it speaks TLS."""

    def key(self, number: int) -> str:
        return f"{self.run}-{number}"

    def values(self, number: int) -> dict[str, Any]:
        return {**self.request, "prompt": PROMPTS[number % len(PROMPTS)], "seed": number}

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@asynccontextmanager
async def open_client(interface: Interface, address: str, asked: Response) -> AsyncIterator[Ask]:
    """A way to ask: `address` is a URL, or HOST:PORT for gRPC."""
    if interface == "grpc":
        async with _channel(address, asked.identity) as channel:
            yield _timed(_GrpcClient(CalotypeStub(channel), asked).ask, asked.timeout_s)
        return
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = asked.headers
    # What the environment says of proxies is not meant for this; `_timed` has the one timeout.
    async with httpx.AsyncClient(
        base_url=address,
        limits=limits,
        timeout=None,  # noqa: S113 - see above
        headers=headers,
        verify=asked.identity.context if asked.identity else True,
        trust_env=False,
    ) as client:
        door = _HttpClient(client, asked)
        ways = {"http": door.job, "openai": door.openai, "plain": door.plain}
        yield _timed(ways[interface], asked.timeout_s)


def _channel(address: str, identity: Identity | None) -> grpc.aio.Channel:
    options: list[tuple[str, int | str]] = [("grpc.max_receive_message_length", NO_LIMIT)]
    if identity is None:
        return grpc.aio.insecure_channel(address, options)
    if identity.name is not None:
        options.append(("grpc.ssl_target_name_override", identity.name))
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(identity.certificate), options)


def _timed(ask: Ask, timeout_s: float) -> Ask:
    """The same, with an end and a word for all that can go wrong on the way."""

    async def timed(number: int) -> Reply:
        try:
            async with asyncio.timeout(timeout_s):
                return await ask(number)
        except TimeoutError:
            return Reply("timeout")
        except httpx.HTTPStatusError as error:
            return Reply(_said(error.response))
        except httpx.HTTPError as error:
            return Reply(f"connection: {type(error).__name__}")
        except grpc.aio.AioRpcError as error:
            return Reply(error.code().name.lower())

    return timed


def _said(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return f"status {response.status_code}"


class _HttpClient:
    def __init__(self, client: httpx.AsyncClient, asked: Response) -> None:
        self._client, self._asked = client, asked

    async def _post(self, path: str, number: int, body: Mapping[str, Any]) -> httpx.Response:
        key = {"Idempotency-Key": self._asked.key(number)}
        answer = await self._client.post(path, json=body, headers=key)
        return answer.raise_for_status()

    async def job(self, number: int) -> Reply:
        body = {"request": self._asked.values(number)}
        job = (await self._post("/v1/jobs?wait=true", number, body)).json()
        if job["state"] != "done":
            return Reply((job["failure"] or {}).get("kind", job["state"]), job["id"])
        for index in range(len(job["pictures"])):
            picture = await self._client.get(f"/v1/jobs/{job['id']}/pictures/{index}")
            if not picture.raise_for_status().content.startswith(_PNG):
                return Reply("no picture", job["id"])
        return Reply(job_id=job["id"], pictures=len(job["pictures"]))

    async def openai(self, number: int) -> Reply:
        values = self._asked.values(number)
        width, height = values.pop("width", None), values.pop("height", None)
        size = {"size": f"{width}x{height}"} if width and height else {}
        count = values.pop("count", 1)
        body = {**values, **size, "n": count, "response_format": "b64_json"}
        made = (await self._post("/v1/images/generations", number, body)).json()["data"]
        return _checked([base64.b64decode(one["b64_json"]) for one in made])

    async def plain(self, number: int) -> Reply:
        answer = await self._post("/generate", number, self._asked.values(number))
        return _checked([answer.content])


class _GrpcClient:
    def __init__(self, stub: CalotypeStub, asked: Response) -> None:
        self._asked = asked
        self._metadata = tuple(asked.headers.items())
        self._generate: Callable[..., Any] = stub.Generate

    async def ask(self, number: int) -> Reply:
        submission = pb.Submission(
            request=pb.GenerateRequest(**self._asked.values(number)),
            idempotency_key=self._asked.key(number),
        )
        made = await self._generate(submission, metadata=self._metadata)
        return _checked(list(made.pictures), made.job.id)


def _checked(files: list[bytes], job_id: str | None = None) -> Reply:
    if not files or not all(data.startswith(_PNG) for data in files):
        return Reply("no picture", job_id)
    return Reply(job_id=job_id, pictures=len(files))
