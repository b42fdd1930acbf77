"""Stores Triton's compiled kernels as relocatable files and installs them.

Triton reads `knobs.cache.dir` at every compilation, and keeps a folder for each kernel there, with a list of
its files by absolute path. A stored copy uses relative paths. It is installed into Triton's current cache:
Triton writes into its folder, and a stored engine must not change.
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
    """Let Triton compile into `folder`, and make its files relocatable at the end.

    Kernels that this process has compiled before are in memory and are not written again.
    """
    if find_spec("triton") is None:
        yield
        return
    from triton import knobs  # noqa: PLC0415 - an optional package

    with knobs.cache.scope():
        knobs.cache.dir = str(folder)
        yield
    for listing in folder.glob(f"*/{_LIST}*"):
        listing.write_text(_relocated(listing, Path()), "utf-8")


def install_triton_cache(folder: Path, files: Sequence[Path]) -> None:
    """Install stored files, named relative to their folder, into Triton's cache."""
    from triton import knobs  # noqa: PLC0415 - an optional package

    destination = Path(knobs.cache.dir).absolute()
    # Lists last: Triton finds a kernel only by its list.
    for name in sorted(files, key=lambda file: file.name.startswith(_LIST)):
        file, destination_file = folder / name, destination / name
        if file.name.startswith(_LIST):
            _write_atomically(destination_file, _relocated(file, destination_file.parent).encode())
        elif not (destination_file.exists() and destination_file.stat().st_size == file.stat().st_size):
            _write_atomically(destination_file, file.read_bytes())


def _write_atomically(destination_file: Path, content: bytes) -> None:
    """Write atomically for other processes. Not synced: hundreds of files would delay the start."""
    destination_file.parent.mkdir(parents=True, exist_ok=True)
    partial = destination_file.with_name(f".{uuid4().hex}")
    try:
        partial.write_bytes(content)
        partial.replace(destination_file)
    finally:
        partial.unlink(missing_ok=True)


def _relocated(listing: Path, folder: Path) -> str:
    """A kernel's list with its files in `folder`."""
    listed = json.loads(listing.read_text("utf-8"))
    files = {key: str(folder / Path(path).name) for key, path in listed[_FILES].items()}
    return json.dumps({**listed, _FILES: files})
