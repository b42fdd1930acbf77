"""Raises the limit on open files and sockets of the server process."""

from __future__ import annotations

import logging
import resource

from calotype.serve.settings import ServeSettings

_log = logging.getLogger(__name__)
_OTHER_FILES = 1024
"""Files and sockets besides those of clients: queue, images, workers, libraries."""


def raise_open_files_limit(settings: ServeSettings) -> None:
    """Raise the limit for all connections: many systems start with 1024."""
    needed = 4 * settings.most_connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < needed:
        _log.warning(
            "the limit of open files is %d, and %d connections of each interface may need %d; raise it with "
            "`ulimit -Hn` or LimitNOFILE, or lower reached.most_connections",
            possible,
            settings.most_connections,
            needed,
        )
