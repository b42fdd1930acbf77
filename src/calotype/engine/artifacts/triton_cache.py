"""Triton's compiled kernels as files that can be moved. Knows nothing of kernels.

Triton looks up `knobs.cache.dir` at every compilation, and keeps a folder for each kernel there, with a list
of its files by absolute path. A kept copy names them relative to itself. It is copied into the folder that
Triton uses anyway, whoever chose that: Triton writes into its folder, and a kept engine is not to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

_LIST = "__grp__"
_FILES = "child_paths"


@contextmanager
def triton_cache_in(folder: Path) -> Iterator[None]:
    """Triton compiles into `folder`, which ends as files that can be moved.

    Kernels that this process has compiled before are in its memory and do not come again.
    """
    if find_spec("triton") is None:
        yield
        return
    from triton import knobs  # noqa: PLC0415 - an optional package

    with knobs.cache.scope():
        knobs.cache.dir = str(folder)
        yield
    for listing in folder.glob(f"*/{_LIST}*"):
        listing.write_text(_moved(listing, Path()), "utf-8")


def install_triton_cache(folder: Path, files: Sequence[Path]) -> None:
    """Put kept files, named relative to their folder, where Triton looks for them."""
    from triton import knobs  # noqa: PLC0415 - an optional package

    destination = Path(knobs.cache.dir).absolute()
    # Lists last: a kernel counts once its list is there.
    for name in sorted(files, key=lambda file: file.name.startswith(_LIST)):
        file, place = folder / name, destination / name
        if file.name.startswith(_LIST):
            _put(place, _moved(file, place.parent).encode())
        elif not (place.exists() and place.stat().st_size == file.stat().st_size):
            _put(place, file.read_bytes())


def _put(place: Path, content: bytes) -> None:
    """Whole or not at all for other processes. Not synced: there are hundreds, and a start is not to wait."""
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{uuid4().hex}")
    try:
        partial.write_bytes(content)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


def _moved(listing: Path, folder: Path) -> str:
    """A kernel's list for when its files lie in `folder`."""
    written = json.loads(listing.read_text("utf-8"))
    files = {key: str(folder / Path(path).name) for key, path in written[_FILES].items()}
    return json.dumps({**written, _FILES: files})
