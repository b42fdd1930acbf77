"""The index of a precomputed folder: its finished shards, and the models that made them."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from calotype.core.errors import Problem, RequestError
from calotype.core.paths import atomic_write, check_name
from calotype.train.data.bad_samples import DataError
from calotype.train.data.requirements import DataRequirements

NAME = "index.json"
FORMAT = "calotype.precomputed.1"


@dataclass(frozen=True)
class Provenance:
    """The encoders and resolution that latents and embeddings belong to; they are invalid with any others."""

    vae_hash: str
    text_hash: str
    resolution: int

    def as_metadata(self) -> dict[str, str]:
        """In the form that every shard stores."""
        return {name: str(value) for name, value in asdict(self).items()}

    def check(self, folder_of_part: Path, needs: DataRequirements) -> None:
        """Refuse results made for another model; the error lists every difference with both values."""
        wanted = {"vae_hash": needs.vae_hash, "text_hash": needs.text_hash, "resolution": needs.resolution}
        problems = [
            Problem(
                f"{folder_of_part}: {name}",
                f"was made with {getattr(self, name)}, the model wants {value}",
                value,
            )
            for name, value in wanted.items()
            if value is not None and value != getattr(self, name)
        ]
        if problems:
            fix = "precompute again for this model, or set data.path to data made for it"
            raise RequestError([*problems, Problem("", fix)])


@dataclass(frozen=True)
class FinishedShard:
    """A shard that is complete on the disk."""

    file: str
    num_samples: int
    last_position: int
    """The position of its last sample, in the order of precomputing."""


@dataclass(frozen=True)
class PrecomputedIndex:
    """One process's part of a precomputed dataset."""

    made_by: Provenance
    part: int = 0
    num_parts: int = 1
    finished: bool = False
    shards: tuple[FinishedShard, ...] = ()

    @property
    def num_samples(self) -> int:
        return sum(shard.num_samples for shard in self.shards)

    def with_shard(self, shard: FinishedShard) -> Self:
        return replace(self, shards=(*self.shards, shard), finished=False)

    def write(self, folder: Path) -> None:
        with atomic_write(folder / NAME, "w") as file:
            json.dump({"format": FORMAT, **asdict(self)}, file, indent=1)

    @classmethod
    def read(cls, folder: Path) -> Self:
        file = folder / NAME
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise DataError(file, f"is of format {values['format']!r}, only {FORMAT!r} is known")
            shards = tuple(FinishedShard(**shard) for shard in values["shards"])
            for shard in shards:
                check_name("file", shard.file)
            made_by = Provenance(**values["made_by"])
            return cls(made_by, values["part"], values["num_parts"], values["finished"], shards)
        except (ValueError, KeyError, TypeError, RequestError) as error:
            raise DataError(file, f"is not the index of a precomputed folder ({error!r})") from None


def part_folder(folder: Path, part: int, num_parts: int) -> Path:
    """The folder of one process's part; a single process writes to the folder itself."""
    return folder if num_parts == 1 else folder / f"part-{part:05d}-of-{num_parts:05d}"


def read_parts(folder: Path, *, unfinished: bool = False) -> list[tuple[Path, PrecomputedIndex]]:
    """Every part with its folder; incomplete parts are refused, unless `unfinished` is set."""
    folders = sorted(index.parent for index in (*folder.glob(NAME), *folder.glob(f"part-*/{NAME}")))
    if not folders:
        raise DataError(
            folder, f"holds no {NAME}: it is not a precomputed folder, or nothing was finished in it"
        )
    parts = [(folder_of_part, PrecomputedIndex.read(folder_of_part)) for folder_of_part in folders]
    first = parts[0][1]
    for folder_of_part, index in parts:
        if (index.made_by, index.num_parts) != (first.made_by, first.num_parts):
            rule = f"its parts do not belong together: {folder_of_part.name} differs from {folders[0].name}"
            raise DataError(folder, f"{rule}; remove the ones that are out of date")
    if unfinished:
        return parts
    missing = sorted(set(range(first.num_parts)) - {index.part for _, index in parts})
    if missing:
        raise DataError(
            folder, f"part {missing[0]} of {first.num_parts} is missing; run precompute again to finish it"
        )
    for folder_of_part, index in parts:
        if not index.finished:
            rule = f"was interrupted after {index.num_samples} samples; run precompute again to finish it"
            raise DataError(folder_of_part, rule)
    return parts
