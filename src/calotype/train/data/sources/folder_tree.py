"""Every folder in and below one, as people lay them out: with links to folders elsewhere. Opens no file."""

import os
from collections.abc import Iterator
from pathlib import Path


def folders_in(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each folder with the names of its files; what is hidden, or would lead round in a circle, is not."""
    for place, folders, files in os.walk(top, followlinks=True):
        here = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".") and not _leads_back(here / name)]
        yield here, [name for name in files if not name.startswith(".")]


def _leads_back(folder: Path) -> bool:
    """Whether it is a link to a folder that it lies in, by whatever way."""
    return folder.is_symlink() and folder.resolve() in map(Path.resolve, folder.absolute().parents)
