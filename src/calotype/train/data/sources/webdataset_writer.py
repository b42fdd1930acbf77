"""Write WebDataset tar shards deterministically: the same samples always give the same bytes."""

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from calotype.core.paths import atomic_write, check_name
from calotype.train.data.bad_samples import DataError


@dataclass(frozen=True)
class Packed:
    """One sample to write: the content of `key.extension` for each extension."""

    key: str
    members: Mapping[str, bytes | str]


def write_shards(
    folder: Path, samples: Iterable[Packed], samples_per_shard: int, *, stem: str = "shard"
) -> list[Path]:
    """Write `stem-000000.tar` and following, each atomically; returns their paths."""
    if samples_per_shard < 1:
        raise ValueError(f"samples_per_shard is {samples_per_shard}, it must be positive")
    check_name("stem", stem)
    earlier = sorted(folder.glob(f"{stem}-*.tar"))
    if earlier:
        rule = f"already holds {len(earlier)} shards named {stem}, such as {earlier[0].name}"
        raise DataError(folder, f"{rule}; old and new ones would be mixed: remove them or use another stem")
    written = []
    for number, shard in enumerate(_in_groups(samples, samples_per_shard)):
        path = folder / f"{stem}-{number:06d}.tar"
        _write_shard(path, shard)
        written.append(path)
    return written


def _in_groups(samples: Iterable[Packed], size: int) -> Iterator[list[Packed]]:
    remaining = iter(samples)
    while group := list(islice(remaining, size)):
        yield group


def _write_shard(path: Path, samples: list[Packed]) -> None:
    keys: set[str] = set()
    with (
        atomic_write(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for sample in samples:
            _check_key(sample.key, keys)
            for extension, content in sorted(sample.members.items()):
                encoded = content.encode() if isinstance(content, str) else content
                # A new TarInfo has time 0 and no owner, so that nothing varies.
                member = tarfile.TarInfo(f"{sample.key}.{extension}")
                member.size = len(encoded)
                archive.addfile(member, io.BytesIO(encoded))


def _check_key(key: str, earlier: set[str]) -> None:
    check_name("key", key)
    if "." in key.rpartition("/")[2]:
        raise DataError(key, "a key cannot contain a dot: readers would take the rest for an extension")
    if key in earlier:
        raise DataError(key, "is the key of two samples of one shard; readers would join them")
    earlier.add(key)
