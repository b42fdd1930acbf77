"""Defines the error for a rejected pickle; its text becomes the rule of the parent's ModelFileError."""

MAX_SHOWN_LENGTH = 120


class RefusedError(Exception):
    """The file is rejected; the message names the rule it breaks."""


def short_repr(value: object) -> str:
    """A value from the file, safe and short enough for a message."""
    if not isinstance(value, str | int | float | bool | None):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[: MAX_SHOWN_LENGTH - 3]}..."
