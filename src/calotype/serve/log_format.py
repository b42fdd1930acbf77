"""JSON log lines that carry the id of the request they belong to."""

from __future__ import annotations

import json
import logging
import re
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime

REQUEST_ID = "x-request-id"
"""The HTTP header or gRPC metadata that carries the id, in requests and responses."""
_USABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")
access_log = logging.getLogger("calotype.access")
"""One line for each request."""


def request_id() -> str:
    """The id of the current request; empty outside of one."""
    return _current.get()


def begin_request(given: str | None) -> str:
    """Set the current request's id: the client's if a log line can hold it, else a new one."""
    name = given if given and _USABLE.fullmatch(given) else uuid.uuid4().hex
    _current.set(name)
    return name


REQUEST_FIELDS = ("job_id", "client")
"""Extra fields of a record that the JSON line includes."""


class JsonFormatter(logging.Formatter):
    """Formats a log record as one JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback is one string in it."""
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({"request_id": request_id()} if request_id() else {}),
            **{name: getattr(record, name) for name in REQUEST_FIELDS if hasattr(record, name)},
            **getattr(record, "values", {}),
        }
        if record.exc_info:
            values["trace"] = self.formatException(record.exc_info)
        return json.dumps(values, default=str)
