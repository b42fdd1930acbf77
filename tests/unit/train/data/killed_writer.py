"""A writer of precomputed shards that kills itself.

python -m tests.unit.train.data.killed_writer FOLDER MOMENT
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from calotype.train.data.precomputed import shard as shard_module
from calotype.train.data.precomputed import writer as writer_module
from calotype.train.data.precomputed.index import PrecomputedIndex
from tests.unit.train.data.precomputed.test_precomputed import MADE_BY, made_from


def kill(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, moment: str) -> None:
    writer = writer_module.PrecomputedWriter(folder, MADE_BY, samples_per_shard=3)
    writer.add(*made_from(range(7)))
    if moment == "while waiting":
        kill()
    if moment == "within a shard":
        shard: Any = shard_module
        write = shard.write_safetensors
        shard.write_safetensors = lambda path, entries, _, note: write(path, entries, kill, note)
    if moment == "before the index":
        PrecomputedIndex.write = kill  # type: ignore[method-assign,assignment]  # in its place
    writer.add(*made_from(range(7, 9)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
