"""Log lines as JSON objects, with the job they are about. Knows nothing of where they go."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import IO

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; all else was given with `extra`."""


class WorkerJsonFormatter(logging.Formatter):
    """One line per record: time, level, logger, message, and whatever was given with `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _ORDINARY}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_json_to(stream: IO[str], **always: object) -> None:
    """Everything from level info on goes there, with these values in every line."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(WorkerJsonFormatter())

    def note(record: logging.LogRecord) -> bool:
        vars(record).update(always)
        return True

    handler.addFilter(note)
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
