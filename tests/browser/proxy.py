"""A proxy that serves everything of a server below a prefix, as a gateway in front of a deployment does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx


@contextmanager
def proxied(server: str, prefix: str) -> Iterator[str]:
    """The address of the proxy; outside the prefix it has nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            with httpx.stream("GET", server + self.path.removeprefix(prefix), timeout=None) as answer:
                self.send_response(answer.status_code)
                for name in ("content-type", "content-security-policy", "etag"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.end_headers()
                try:
                    for part in answer.iter_bytes():
                        self.wfile.write(part)
                        self.wfile.flush()
                except OSError:
                    pass  # The browser has closed a stream of events.

        def log_message(self, *_: object) -> None:
            """The tests need no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        listening.block_on_close = False
        thread = Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()
