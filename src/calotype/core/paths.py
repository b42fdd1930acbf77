"""Folders of Calotype, safe resolution of file names, and atomic writes."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from calotype.core.errors import DISK_FULL_CODES, NotFoundError, Problem, RequestError, did_you_mean

MAX_NAME_LENGTH = 255


def _xdg(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / fallback)


def models_dir() -> Path:
    """The model folder: $CALOTYPE_MODELS, or a folder in the data directory of the user."""
    chosen = os.environ.get("CALOTYPE_MODELS")
    return Path(chosen) if chosen else _xdg("XDG_DATA_HOME", ".local/share") / "calotype" / "models"


def cache_dir() -> Path:
    """Files that can be rebuilt: $CALOTYPE_CACHE, or a folder in the cache directory of the user."""
    chosen = os.environ.get("CALOTYPE_CACHE")
    return Path(chosen) if chosen else _xdg("XDG_CACHE_HOME", ".cache") / "calotype"


def state_dir() -> Path:
    """Files that cannot be rebuilt: $CALOTYPE_STATE, or a folder in the state directory of the user."""
    chosen = os.environ.get("CALOTYPE_STATE")
    return Path(chosen) if chosen else _xdg("XDG_STATE_HOME", ".local/state") / "calotype"


def check_name(field: str, name: str) -> str:
    """Raise if a name could point outside its folder on any system, whether or not it exists."""

    def refuse(rule: str) -> RequestError:
        shown = name if len(name) <= 80 else f"{name[:77]}..."
        return RequestError([Problem(field, f"{shown!r} is not a usable name: {rule}", name)])

    if not name:
        raise refuse("it is empty")
    # This also rejects lone surrogates, which cannot be encoded.
    if not name.isprintable():
        raise refuse("it holds control characters")
    if len(os.fsencode(name)) > MAX_NAME_LENGTH:
        raise refuse(f"it is {len(os.fsencode(name))} bytes long, the limit is {MAX_NAME_LENGTH}")
    if "\\" in name or "%" in name:
        raise refuse("backslash and percent signs are not allowed")
    if name.startswith(("/", "~")) or (len(name) > 1 and name[1] == ":"):
        raise refuse("it is an absolute path; put the file into the folder and give its name there")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise refuse(
            "'.', '..' and empty parts are not allowed; put the file into the folder and give its name there"
        )
    return name


def resolve_inside(root: Path, name: str, *, field: str = "name") -> Path:
    """The existing file or folder `name` under `root`; raises for a link that leaves `root`.

    The suffix may be omitted if only one file has that stem.
    """
    check_name(field, name)
    real_root = root.resolve()
    candidate = root / name
    if not candidate.exists():
        candidate = _by_stem(root, name)
    real = candidate.resolve()
    if not real.is_relative_to(real_root):
        raise RequestError([Problem(field, f"{name!r} is a link that leaves its folder, {root.name}", name)])
    return candidate


def _by_stem(root: Path, name: str) -> Path:
    stems = {known: str(Path(known).with_suffix("")) for known in list_files(root)}
    matches = [known for known, stem in stems.items() if stem == name]
    if len(matches) == 1:
        return root / matches[0]
    if matches:
        raise NotFoundError(f"{name!r} in {root} could be any of: {', '.join(matches)}; add the suffix")
    raise NotFoundError(f"no {name!r} in {root}; {did_you_mean(name, stems.values())}")


def list_files(root: Path) -> list[str]:
    """Sorted names of files under `root`, relative to it; empty if the folder is missing."""
    if not root.is_dir():
        return []
    return sorted(
        str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")
    )


@contextmanager
def atomic_write(path: Path, mode: str = "wb", *, synced: bool = True) -> Iterator[IO[Any]]:
    """Write a temporary file next to `path` and rename it at the end; interruption leaves nothing behind.

    Without `synced`, a power loss can leave the file empty until the caller has synced it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
    try:
        with os.fdopen(fd, mode) as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        # mkstemp creates private files; results need the permissions of a normal new file.
        umask = os.umask(0)
        os.umask(umask)
        Path(partial).chmod(0o666 & ~umask)
        Path(partial).replace(path)
    except BaseException as error:
        Path(partial).unlink(missing_ok=True)
        name_full_disk(error, path)
        raise


def name_full_disk(error: BaseException, path: Path) -> None:
    """Add the path to a disk-full error, as a failed write does not name the file."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_CODES and error.filename is None:
        error.filename = str(path)
