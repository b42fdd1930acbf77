"""File names for images: readable, portable and unused."""

import re
import unicodedata
from pathlib import Path

MAX_SLUG_LENGTH = 48


def slug(prompt: str) -> str:
    """The prompt as part of a file name: words of any script, joined by dashes."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", prompt))
    return "-".join(words)[:MAX_SLUG_LENGTH].strip("-").lower() or "picture"


def free_name(folder: Path, prompt: str, kind: str, suffix: str) -> Path:
    """A path that does not exist yet, with a number appended if necessary."""
    stem = f"{slug(prompt)}-{kind}"
    candidate, number = folder / f"{stem}.{suffix}", 2
    while candidate.exists():
        candidate, number = folder / f"{stem}-{number}.{suffix}", number + 1
    return candidate
