"""A Kubernetes API on loopback: a real HTTP server with versions, watches, logs, quotas and faults.

It answers as the real one does where the back end looks: Status objects with the real codes and reasons, 409
for a name or a uid that is taken, 410 for a version that it has forgotten, watches that end, logs that go on.
Schemas are checked where an object is created. What goes wrong is scripted beforehand.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.unit.launch.kubernetes.schemas import faults

Object = dict[str, Any]
TOKEN = "a-token-of-the-kubeconfig"


@dataclass
class Fault:
    """What the next request of a kind gets instead of its answer."""

    status: int
    reason: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False
    """Do the work, then hang up without an answer."""


class FakeApi:
    """The state behind the server. Tests change it as controllers and kubelets would."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.oldest = 0
        """Watches from before this version are Gone."""
        self.objects: dict[str, dict[str, Object]] = defaultdict(dict)
        """By the path of their collection, by name."""
        self.events: list[tuple[int, str, str, Object]] = []
        self.logs: dict[str, list[str]] = defaultdict(list)
        self.faults: dict[str, list[Fault | None]] = defaultdict(list)
        """By `METHOD PATH-PATTERN`, in the order they happen; None lets a request through."""
        self.lost_watches = 0
        """So many of the next watches break in the middle of an event, by turns with and without an end."""
        self.lost_logs = 0
        """So many of the next followed logs break after two lines."""
        self.quota: dict[str, int] = {}
        """GPUs that a namespace may use."""
        self.kinds = {"trainjobs", "pytorchjobs", "pods", "nodes"}
        self.namespaces = {"default"}
        self.requests: list[str] = []

    def put(self, collection: str, each: Object) -> Object:
        """Create or change an object, as a controller would."""
        with self.changed:
            self.version += 1
            meta = each["metadata"]
            kind = "MODIFIED" if meta["name"] in self.objects[collection] else "ADDED"
            each = {
                **each,
                "metadata": {"uid": str(uuid.uuid4()), **meta, "resourceVersion": str(self.version)},
            }
            self.objects[collection][meta["name"]] = each
            self.events.append((self.version, collection, kind, each))
            self.changed.notify_all()
            return each

    def remove(self, collection: str, name: str) -> None:
        with self.changed:
            self.version += 1
            gone = self.objects[collection].pop(name)
            self.events.append((self.version, collection, "DELETED", gone))
            self.changed.notify_all()

    def say(self, pod: str, *lines: str) -> None:
        """A pod prints."""
        with self.changed:
            for line in lines:
                number = len(self.logs[pod])
                # As some nodes do, without a fraction's last zeros.
                stamp = f"2026-01-01T00:00:{number // 10:02}.{number % 10 or ''}".removesuffix(".")
                self.logs[pod].append(f"{stamp}Z {line}")
            self.changed.notify_all()

    def fault(self, method: str, pattern: str, fault: Fault) -> None:
        self.faults[f"{method} {pattern}"].append(fault)

    def next_fault(self, method: str, path: str) -> Fault | None:
        for key, waiting in self.faults.items():
            wanted, _, pattern = key.partition(" ")
            if wanted == method and re.search(pattern, path) and waiting:
                return waiting.pop(0)
        return None


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.api = api
    return Handler


class _Handler(BaseHTTPRequestHandler):
    api: FakeApi
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        pass

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _answer(self, work: Any) -> None:
        parts = urlsplit(self.path)
        self.where = parts.path
        self.query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length", 0))
        self.body = json.loads(self.rfile.read(length)) if length else None
        self.api.requests.append(f"{self.command} {self.path}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "Unauthorized", "Unauthorized")
            return
        fault = self.api.next_fault(self.command, self.path)
        if fault and not fault.after:
            self._refuse(fault.status, fault.reason, fault.message, fault.headers)
            return
        if fault:
            self.send_response = lambda *_: None  # type: ignore[method-assign]
            self.end_headers = lambda: None  # type: ignore[method-assign]
            self.wfile = _Nowhere()  # type: ignore[assignment]
            work()
            self.close_connection = True
            return
        work()

    def _send(self, value: Object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        self._send(_status(code, reason, message), code, headers)

    # What is asked for.

    def _place(self) -> tuple[str, str, str]:
        """The collection's path, an object's name and a part of it."""
        found = re.fullmatch(
            r"(/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/[^/]+)(?:/([^/]+))?(?:/(log))?", self.where
        )
        assert found, self.where
        return found[1], found[2] or "", found[3] or ""

    def _kind_is_known(self, collection: str) -> bool:
        if collection.rsplit("/", 1)[1] in self.api.kinds:
            return True
        data = b"404 page not found\n"
        self.send_response(404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return False

    def _get(self) -> None:
        collection, name, part = self._place()
        if not self._kind_is_known(collection):
            return
        if part == "log":
            self._log(collection, name)
        elif name:
            found = self.api.objects[collection].get(name)
            if found is None:
                self._missing(collection, name)
            else:
                self._send(found)
        elif self.query.get("watch") == "true":
            self._watch(collection)
        else:
            with self.api.changed:
                items = [each for each in self.api.objects[collection].values() if self._selected(each)]
                version = str(self.api.version)
            self._send({"kind": "List", "metadata": {"resourceVersion": version}, "items": items})

    def _missing(self, collection: str, name: str) -> None:
        self._refuse(404, "NotFound", f'{collection.rsplit("/", 1)[1]} "{name}" not found')

    def _selected(self, each: Object) -> bool:
        wanted = self.query.get("labelSelector")
        if not wanted:
            return True
        key, _, value = wanted.partition("=")
        return bool(each["metadata"].get("labels", {}).get(key) == value)

    def _post(self) -> None:
        collection, _, _ = self._place()
        assert self.body is not None
        namespace = collection.split("/namespaces/")[1].split("/")[0]
        name = self.body["metadata"]["name"]
        if not self._kind_is_known(collection):
            return
        if namespace not in self.api.namespaces:
            self._refuse(404, "NotFound", f'namespaces "{namespace}" not found')
            return
        wrong = faults(self.body)
        if wrong and self.query.get("fieldValidation") == "Strict":
            self._refuse(400, "BadRequest", f"strict decoding error: {wrong[0]}")
            return
        used, most = _gpus(self.body), self.api.quota.get(namespace)
        if most is not None and used > most:
            about = f"requested: requests.nvidia.com/gpu={used}, limited: requests.nvidia.com/gpu={most}"
            self._refuse(403, "Forbidden", f"{name} is forbidden: exceeded quota: team, {about}")
            return
        if name in self.api.objects[collection]:
            self._refuse(409, "AlreadyExists", f'{collection.rsplit("/", 1)[1]} "{name}" already exists')
            return
        made = self.body if self.query.get("dryRun") else self.api.put(collection, self.body)
        self._send(made, 201)

    def _delete(self) -> None:
        collection, name, _ = self._place()
        found = self.api.objects[collection].get(name)
        if found is None:
            self._missing(collection, name)
            return
        uid = (self.body or {}).get("preconditions", {}).get("uid")
        if uid and uid != found["metadata"]["uid"]:
            self._refuse(
                409, "Conflict", f"the UID in the precondition ({uid}) does not match the UID in record"
            )
            return
        self.api.remove(collection, name)
        self._send(_status(200, "", ""))

    # Streams.

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _hang_up(self) -> None:
        """Without the last chunk that says that all was sent."""
        self.wfile.flush()
        self.close_connection = True

    def _watch(self, collection: str) -> None:
        since = int(self.query["resourceVersion"])
        self._begin()
        if since < self.api.oldest:
            gone = _status(410, "Expired", f"too old resource version: {since} ({self.api.oldest})")
            self._chunk(json.dumps({"type": "ERROR", "object": gone}) + "\n")
            self._chunk("")
            return
        if self.api.lost_watches:
            self.api.lost_watches -= 1
            self._chunk('{"type": "MODIFIED", "obj')
            if self.api.lost_watches % 2:
                self._chunk("")
            else:
                self._hang_up()
            return
        limit = float(self.query.get("timeoutSeconds", "60"))
        sent = since
        while True:
            with self.api.changed:
                fresh = [each for each in self.api.events if each[0] > sent and each[1] == collection]
                if not fresh and not self.api.changed.wait(limit):
                    break
            for number, _, kind, each in fresh:
                sent = number
                if self._selected(each):
                    self._chunk(json.dumps({"type": kind, "object": each}) + "\n")
        self._chunk("")

    def _log(self, collection: str, name: str) -> None:
        pod = self.api.objects[collection].get(name)
        if pod is None:
            self._missing(collection, name)
            return
        if pod["status"]["phase"] == "Pending":
            about = f'container "{self.query["container"]}" in pod "{name}" is waiting to start'
            self._refuse(400, "BadRequest", f"{about}: ContainerCreating")
            return
        sent = self._first_line(name)
        self._begin()
        lost = self.query.get("follow") == "true" and self.api.lost_logs > 0
        self.api.lost_logs -= lost
        while True:
            with self.api.changed:
                lines = self.api.logs[name][sent:]
                over = self.api.objects[collection].get(name, pod)["status"]["phase"] in (
                    "Succeeded",
                    "Failed",
                )
                if not lines and not over and self.query.get("follow") == "true":
                    self.api.changed.wait(5)
                    continue
            sent += len(lines)
            for number, line in enumerate(lines):
                self._chunk((line if self.query.get("timestamps") else line.partition(" ")[2]) + "\n")
                if lost and number == 1:
                    self._chunk("2026-01-01T00:00:59Z half a li")
                    self._hang_up()
                    return
            if not lines:
                break
        self._chunk("")

    def _first_line(self, pod: str) -> int:
        lines = self.api.logs[pod]
        if "sinceTime" in self.query:
            since = self.query["sinceTime"].removesuffix("Z")
            return next((i for i, line in enumerate(lines) if line[:19] >= since), len(lines))
        return max(0, len(lines) - int(self.query["tailLines"])) if "tailLines" in self.query else 0


class _Nowhere:
    closed = True

    def write(self, _data: bytes) -> int:
        return 0

    def flush(self) -> None:
        pass


def _status(code: int, reason: str, message: str) -> Object:
    state = "Success" if code < 300 else "Failure"
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": state,
        "message": message,
        "reason": reason,
        "code": code,
    }


def _gpus(manifest: Object) -> int:
    if manifest["kind"] != "TrainJob":
        return 0
    trainer = manifest["spec"]["trainer"]
    limits = trainer.get("resourcesPerNode", {}).get("limits", {})
    return int(limits.get("nvidia.com/gpu", 0)) * int(trainer["numNodes"])


@contextmanager
def running_api(api: FakeApi) -> Iterator[str]:
    """Serves it; a kubeconfig that leads there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield kubeconfig(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def kubeconfig(port: int) -> str:
    """As `kubectl config view --raw` prints one."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "someone"}}],
            "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "someone", "user": {"token": TOKEN}}],
        }
    )
