"""The number of files and sockets that the server process may have open."""

from __future__ import annotations

import logging
import resource

from calotype.serve.settings import ServeSettings

_log = logging.getLogger(__name__)
_OTHERS = 1024
"""Files and sockets besides those of clients: queue, pictures, workers, libraries."""


def raise_open_files_limit(settings: ServeSettings) -> None:
    """Make room for all connections: many systems begin with 1024."""
    needed = 4 * settings.most_connections + _OTHERS
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
