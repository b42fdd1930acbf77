"""The error for a rule that a pickle breaks. Its text becomes the rule of the parent's ModelFileError."""

LONGEST_SHOWN = 120


class RefusedError(Exception):
    """The file is not converted; the message says which rule it breaks."""


def shown(value: object) -> str:
    """A value from the file, safe and short enough for a message."""
    if not isinstance(value, str | int | float | bool | None):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
