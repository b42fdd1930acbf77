"""A real web server on this machine that fails as told. Serves one file, whatever is asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Script:
    """What the server has and how it answers: each request takes the next answer, the last one stays."""

    content: bytes
    answers: list[str | int] = field(default_factory=lambda: ["whole"])
    """A status to refuse with; or whole, half (then the line goes dead), and no_ranges."""
    tag: str | None = '"v1"'
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and range of every request."""
    url: str = ""

    def next_answer(self) -> str | int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class _Handler(BaseHTTPRequestHandler):
    script: Script

    def do_GET(self) -> None:
        script = self.script
        asked = self.headers.get("Range")
        script.asked.append((self.path, asked))
        answer = script.next_answer()
        if isinstance(answer, int):
            self.send_error(answer)
            return
        usable = asked and answer != "no_ranges" and self.headers.get("If-Range") == script.tag
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and usable else 0
        body = script.content[start:]
        self.send_response(206 if usable else 200)
        if usable:
            self.send_header(
                "Content-Range", f"bytes {start}-{len(script.content) - 1}/{len(script.content)}"
            )
        if script.tag is not None:
            self.send_header("ETag", script.tag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if answer == "half" else body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


@contextmanager
def serving(script: Script) -> Iterator[Script]:
    handler = type("Handler", (_Handler,), {"script": script})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        script.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield script
        finally:
            server.shutdown()
            thread.join(60)
