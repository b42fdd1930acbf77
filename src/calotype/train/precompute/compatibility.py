"""What a precomputed folder was started from, so that a resumed precompute cannot mix two origins."""

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
    """The settings that results depend on, besides the model, which the index names."""

    data: str
    """The identity of the list of samples; positions are valid only within it."""
    dtype: str
    """The dtype of the stored results."""
    precision: str
    """The precision of the computation."""
    buckets: bool
    """Whether samples are bucketed; it changes the order and so the sample at each position."""
    crop: str
    random_flip: bool
    default_caption: str | None

    def settle(self, folder: Path, part: int, num_parts: int) -> None:
        """Write the origin for a new part; refuse to resume a part with another origin."""
        file = part_folder(folder, part, num_parts) / FILE
        if not (file.parent / NAME).exists():
            with atomic_write(file, "w") as out:
                json.dump(asdict(self), out, indent=1)
            return
        try:
            saved = dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            rule = f"does not say what the folder was begun from ({error}); use an empty folder"
            raise DataError(file, rule) from None
        # Folders of earlier versions hold fewer fields.
        changed = [
            f"{name} {saved[name]!r} (now {value!r})"
            for name, value in asdict(self).items()
            if name in saved and saved[name] != value
        ]
        if changed:
            rule = f"was started with {', '.join(changed)}; use the same settings or an empty folder"
            raise DataError(file.parent, rule)


def refuse_other_parts(folder: Path, num_parts: int) -> None:
    """Refuse parts made by another number of processes: their pieces do not fit together."""
    current_parts = {part_folder(folder, part, num_parts) for part in range(num_parts)}
    for index in sorted((*folder.glob(NAME), *folder.glob(f"part-*/{NAME}"))):
        if index.parent not in current_parts:
            rule = f"was made by another number of processes than the current {num_parts}"
            raise DataError(index.parent, f"{rule}; start as many as before or use an empty folder")
