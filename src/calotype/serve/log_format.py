"""A request's id in every line of the log, and lines of JSON. Knows nothing of how requests come."""

from __future__ import annotations

import json
import logging
import re
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime

REQUEST_ID = "x-request-id"
"""Header or metadata of that name, in and out."""
_USABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")
access_log = logging.getLogger("calotype.access")
"""One line a request."""


def request_id() -> str:
    """Of the request that is being served; empty outside of one."""
    return _current.get()


def begin_request(given: str | None) -> str:
    """Name the request that begins: as its client does, where that is a name a log can hold."""
    name = given if given and _USABLE.fullmatch(given) else uuid.uuid4().hex
    _current.set(name)
    return name


REQUEST_FIELDS = ("job_id", "client")
"""What a line is about, where whoever logs it says so by `extra`."""


class JsonFormatter(logging.Formatter):
    """Log records as JSON, one a line, with the id of the request they belong to."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a trace is one string of it."""
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
