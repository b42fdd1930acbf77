"""A real web server here for a folder of files, which spoils chosen answers. Knows nothing of shards."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread


@dataclass
class Served:
    folder: Path
    faults: dict[str, list[str]] = field(default_factory=dict)
    """By file name, of its next answers: busy (503), cut (half of it), wrong (other bytes), or well."""
    asked: Counter[str] = field(default_factory=Counter)
    url: str = ""
    lock: Lock = field(default_factory=Lock)

    def next_fault(self, name: str) -> str:
        with self.lock:
            self.asked[name] += 1
            waiting = self.faults.get(name, [])
            return waiting.pop(0) if waiting else "well"


class _Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].lstrip("/")
        file, fault = self.served.folder / name, self.served.next_fault(name)
        if not file.is_file() or fault == "busy":
            self.send_error(404 if fault != "busy" else 503)
            return
        content = file.read_bytes()
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        body = content[start:]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", '"v1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        spoilt = {"cut": body[: len(body) // 2], "wrong": bytes(byte ^ 1 for byte in body)}
        self.wfile.write(spoilt.get(fault, body))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


@contextmanager
def serving_folder(folder: Path) -> Iterator[Served]:
    served = Served(folder)
    handler = type("Handler", (_Handler,), {"served": served})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield served
        finally:
            server.shutdown()
            thread.join(60)
