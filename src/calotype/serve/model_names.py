"""The names that clients use for the models of a deployment. Opens no model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def served_name(model: str) -> str:
    """The file name of an absolute path, so that clients do not see folders; a name is unchanged."""
    return Path(model).name if Path(model).is_absolute() else model


def resolvable_names(model: str) -> str:
    """The absolute path of an existing model file, valid from any folder; a name is unchanged."""
    # Too long, with a NUL, or of an unknown user: the code that opens the model reports it.
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(model).expanduser().absolute()
        if ("/" in model or path.suffix) and path.exists():
            return str(path)
    return model
