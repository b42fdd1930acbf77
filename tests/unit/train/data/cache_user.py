"""A program that reads files through a cache that others use meanwhile, and fails if one is not whole.

python -m tests.unit.train.data.cache_user FOLDER URL SIZE ROUNDS
"""

import hashlib
import sys
from contextlib import suppress
from pathlib import Path

from calotype.train.data.sources.node_cache import NodeCache, RemoteFile
from tests.unit.train.data.together import wait_for_the_others

NUM_FILES, HELD, LOOKS = 5, 3, 3


def main(folder: Path, url: str, size: int, rounds: int) -> None:
    cache = NodeCache(folder, HELD * size)
    for turn in range(rounds):
        number = turn % NUM_FILES
        content = bytes([number]) * size
        checksum = ("sha256", hashlib.sha256(content).hexdigest())
        lease = cache.lease(RemoteFile(f"{url}/{number}.tar", size, checksum))
        found = lease.path.read_bytes()
        lease.close()
        assert found == content, f"{number}: {found[:8]!r}"
        # While it looks, another may put one in the place of one that it counted: only all looks count.
        total = min(bytes_in(folder) for _ in range(LOOKS))
        assert total <= HELD * size, f"{total} bytes on disk"


def bytes_in(folder: Path) -> int:
    """Of what is there; another may remove a file between its being listed and looked at."""
    total = 0
    for path in folder.glob("*/*.tar"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


if __name__ == "__main__":
    wait_for_the_others()
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
