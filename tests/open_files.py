"""Which files this process has open. Knows nothing of any test."""

from __future__ import annotations

from pathlib import Path


def open_below(folder: Path) -> list[Path]:
    """The open ones in a folder; the rest of the process' may go at any moment, left by other tests."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(file for file in (link.readlink() for link in links) if file.is_relative_to(folder))
