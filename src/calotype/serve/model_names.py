"""What clients call the models of a deployment. Opens none of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def served_name(model: str) -> str:
    """Of a path, the file's name: where it lies is nobody else's business, and paths are no names."""
    return Path(model).name if Path(model).is_absolute() else model


def resolvable_names(model: str) -> str:
    """A path that means the same wherever the server is started; a name as it is."""
    # Too long, with a NUL, of a user who does not exist: whoever looks for it says which.
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(model).expanduser().absolute()
        if ("/" in model or path.suffix) and path.exists():
            return str(path)
    return model
