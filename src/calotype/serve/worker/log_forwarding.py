"""Writes log records as JSON lines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import IO

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record; all others come from `extra`."""


class WorkerJsonFormatter(logging.Formatter):
    """Formats a record as one line: time, level, logger, message and the values of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_json_to(stream: IO[str], **always: object) -> None:
    """Log level info and above to a stream, with the values of `always` in every line."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(WorkerJsonFormatter())

    def add_values(record: logging.LogRecord) -> bool:
        vars(record).update(always)
        return True

    handler.addFilter(add_values)
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
