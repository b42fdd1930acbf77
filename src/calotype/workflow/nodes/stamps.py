"""Whether a file is still what it was. Opens none."""

from collections.abc import Hashable
from pathlib import Path


def stamp(reference: str) -> Hashable:
    """Changes when the file or folder does that a reference is the path of; no folder inside it is seen."""
    try:
        status = Path(reference).stat()
    except (OSError, ValueError):
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)
