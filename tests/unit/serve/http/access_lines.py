"""Lines of the access log as they are written, which may be after the answer has arrived."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

from calotype.serve.log_format import JsonFormatter, access_log


class Lines(logging.Handler):
    """Keeps lines for whoever waits for one."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: Queue[dict[str, Any]] = Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(json.loads(JsonFormatter().format(record)))

    def of(self, path: str) -> dict[str, Any]:
        """The next line of a request for this path."""
        while (line := self._lines.get(timeout=20))["path"] != path:
            pass
        return line


@contextmanager
def access_lines() -> Iterator[Lines]:
    """What the access log says meanwhile."""
    lines, level = Lines(), access_log.level
    access_log.addHandler(lines)
    access_log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        access_log.setLevel(level)
        access_log.removeHandler(lines)
