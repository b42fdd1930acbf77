"""Walk a folder tree with symbolic links."""

import os
from collections.abc import Iterator
from pathlib import Path


def folders_in(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each folder with the names of its files, without hidden ones and without cycles of links."""
    for place, folders, files in os.walk(top, followlinks=True):
        here = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_cycle(here / name)]
        yield here, [name for name in files if not name.startswith(".")]


def _is_cycle(folder: Path) -> bool:
    """Whether it is a link to one of its own parent folders, directly or indirectly."""
    return folder.is_symlink() and folder.resolve() in map(Path.resolve, folder.absolute().parents)
