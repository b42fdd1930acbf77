"""Expand a shard path with braces, wildcards, folders or URLs into single shards."""

import re
from itertools import product
from pathlib import Path

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.train.data.sources.http_download import fetch_all, is_url

MAX_SHARDS = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NUM_SHOWN = 3


def local_shards(pattern: str) -> list[Path]:
    """Local paths of all shards that `pattern` names, in order; remote ones are downloaded first."""
    named = expand_braces(pattern)
    if is_url(pattern):
        return fetch_all(named)
    paths = [path for name in named for path in _on_disk(Path(name).expanduser())]
    missing = [path for path in paths if not path.exists()]
    if missing:
        shown = ", ".join(str(path) for path in missing[:_NUM_SHOWN])
        raise NotFoundError(f"data.path: {len(missing)} of {len(paths)} shards do not exist: {shown}")
    if not paths:
        raise NotFoundError(f"data.path: {pattern} names no shards; a shard is a file ending in .tar")
    return paths


def expand_braces(pattern: str) -> list[str]:
    """`a-{08..10}` as a-08, a-09, a-10; `{x,y}` as x, y; several braces in every combination."""
    pieces = _BRACES.split(pattern)
    if any("{" in piece or "}" in piece for piece in pieces):
        raise _refused(pattern, "its braces do not match")
    # After the split the contents of braces are at the odd indices.
    choices = [_choices(pattern, piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MAX_SHARDS:
        raise _refused(pattern, f"it names {total} shards, the limit is {MAX_SHARDS}")
    return ["".join(parts) for parts in product(*choices)]


def _choices(pattern: str, inside: str) -> list[str]:
    span = _RANGE.fullmatch(inside)
    if span is None:
        if "," not in inside:
            raise _refused(
                pattern, f"{{{inside}}} is neither a range like {{000..099}} nor a list like {{a,b}}"
            )
        return inside.split(",")
    first, last = span.groups()
    if int(last) < int(first):
        raise _refused(pattern, f"{{{inside}}} runs backwards; write {{{last}..{first}}}")
    if int(last) - int(first) >= MAX_SHARDS:
        raise _refused(pattern, f"{{{inside}}} names more than {MAX_SHARDS} shards")
    # As in a shell, a leading zero pads all numbers to the same width.
    width = len(first) if first.startswith("0") else 0
    return [str(number).zfill(width) for number in range(int(first), int(last) + 1)]


def _on_disk(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.tar"))
    if "*" in path.name or "?" in path.name:
        return sorted(path.parent.glob(path.name))
    return [path]


def _refused(pattern: str, rule: str) -> RequestError:
    return RequestError([Problem("data.path", f"{pattern!r}: {rule}", pattern)])
