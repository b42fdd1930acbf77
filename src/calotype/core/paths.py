"""Where things live, names that cannot leave their folder, and files that are whole or not there.

Knows nothing of what the files hold.
"""

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
    """The model folder: $CALOTYPE_MODELS, or a place under the user's data directory."""
    chosen = os.environ.get("CALOTYPE_MODELS")
    return Path(chosen) if chosen else _xdg("XDG_DATA_HOME", ".local/share") / "calotype" / "models"


def cache_dir() -> Path:
    """Files that can be made again at any time: $CALOTYPE_CACHE, or a place under the user's cache."""
    chosen = os.environ.get("CALOTYPE_CACHE")
    return Path(chosen) if chosen else _xdg("XDG_CACHE_HOME", ".cache") / "calotype"


def state_dir() -> Path:
    """What cannot be made again: $CALOTYPE_STATE, or a place under the user's state directory."""
    chosen = os.environ.get("CALOTYPE_STATE")
    return Path(chosen) if chosen else _xdg("XDG_STATE_HOME", ".local/state") / "calotype"


def check_name(field: str, name: str) -> str:
    """Refuse a name that could point outside its folder on any system, whether or not it exists."""

    def refuse(rule: str) -> RequestError:
        shown = name if len(name) <= 80 else f"{name[:77]}..."
        return RequestError([Problem(field, f"{shown!r} is not a usable name: {rule}", name)])

    if not name:
        raise refuse("it is empty")
    # Halves of characters too, which cannot be written as bytes.
    if not name.isprintable():
        raise refuse("it holds control characters")
    if len(os.fsencode(name)) > MAX_NAME_LENGTH:
        raise refuse(f"it is {len(os.fsencode(name))} bytes long, the limit is {MAX_NAME_LENGTH}")
    if "\\" in name or "%" in name:
        raise refuse("backslash and percent signs are not allowed")
    if name.startswith(("/", "~")) or (len(name) > 1 and name[1] == ":"):
        raise refuse("it is an absolute path; put the file into the folder and say its name there")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise refuse(
            "'.', '..' and empty parts are not allowed; put the file into the folder and say its name there"
        )
    return name


def resolve_inside(root: Path, name: str, *, field: str = "name") -> Path:
    """The existing file or folder `name` under `root`; a link that leads out of `root` is refused.

    A name without its suffix is enough when only one file has that stem.
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
    """Names under `root`, relative to it, in a stable order. A missing folder is an empty one."""
    if not root.is_dir():
        return []
    return sorted(
        str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")
    )


@contextmanager
def atomic_write(path: Path, mode: str = "wb", *, synced: bool = True) -> Iterator[IO[Any]]:
    """Write beside `path` and rename over it at the end: an interrupted write leaves nothing behind.

    Not `synced`, a loss of power can leave it empty, until whoever says so has synced it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
    try:
        with os.fdopen(fd, mode) as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        # mkstemp makes private files; a result should carry the permissions any new file would.
        umask = os.umask(0)
        os.umask(umask)
        Path(partial).chmod(0o666 & ~umask)
        Path(partial).replace(path)
    except BaseException as error:
        Path(partial).unlink(missing_ok=True)
        name_full_disk(error, path)
        raise


def name_full_disk(error: BaseException, path: Path) -> None:
    """Add the path to a full disk's error: a failed write does not say which file it was for."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_CODES and error.filename is None:
        error.filename = str(path)
