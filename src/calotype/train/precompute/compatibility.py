"""What a precomputed folder was begun from, so that going on cannot mix two things. Knows no tensors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from calotype.core.paths import atomic_write
from calotype.train.data.bad_samples import DataError
from calotype.train.data.precomputed.index import NAME, part_folder

FILE = "origin.json"


@dataclass(frozen=True)
class Origin:
    """Beyond the model, which the index names."""

    data: str
    """Identity of the list of samples; a position means nothing in another."""
    dtype: str
    """Of what is kept."""
    precision: str
    """Of the arithmetic."""
    buckets: bool
    """Another answer is another order, in which a position means another sample."""
    crop: str
    random_flip: bool
    default_caption: str | None

    def settle(self, folder: Path, part: int, num_parts: int) -> None:
        """Note it beside a part that is new; refuse to go on with one that was begun differently."""
        file = part_folder(folder, part, num_parts) / FILE
        if not (file.parent / NAME).exists():
            with atomic_write(file, "w") as out:
                json.dump(asdict(self), out, indent=1)
            return
        try:
            begun = dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            rule = f"does not say what the folder was begun from ({error}); use an empty folder"
            raise DataError(file, rule) from None
        # Folders of earlier versions say less.
        different = [
            f"{name} {begun[name]!r} (now {value!r})"
            for name, value in asdict(self).items()
            if name in begun and begun[name] != value
        ]
        if different:
            rule = f"was begun with {', '.join(different)}; ask for the same again or use an empty folder"
            raise DataError(file.parent, rule)


def refuse_other_parts(folder: Path, num_parts: int) -> None:
    """Work shared between another number of processes has other pieces, which do not fit together."""
    ours = {part_folder(folder, part, num_parts) for part in range(num_parts)}
    for index in sorted((*folder.glob(NAME), *folder.glob(f"part-*/{NAME}"))):
        if index.parent not in ours:
            rule = f"was made by another number of processes than the {num_parts} of now"
            raise DataError(index.parent, f"{rule}; start as many as before or use an empty folder")
