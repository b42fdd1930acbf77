"""A program that reads files through a cache that others use meanwhile, and fails if one is not whole.

python -m tests.unit.train_data.cache_user FOLDER URL SIZE ROUNDS
"""

import hashlib
import sys
from pathlib import Path

from calotype.train.data.node_cache import NodeCache, RemoteFile
from tests.unit.train_data.together import wait_for_the_others

NUM_FILES, HELD = 5, 3


def main(folder: Path, url: str, size: int, rounds: int) -> None:
    cache = NodeCache(folder, HELD * size)
    for turn in range(rounds):
        number = turn % NUM_FILES
        content = bytes([number]) * size
        checksum = ("sha256", hashlib.sha256(content).hexdigest())
        lease = cache.lease(RemoteFile(f"{url}/{number}.tar", size, checksum))
        found = lease.path.read_bytes()
        lease.close()
        # Another may remove one between its being listed and looked at.
        total = sum(path.stat().st_size for path in folder.glob("*/*.tar") if path.exists())
        assert found == content, f"{number}: {found[:8]!r}"
        assert total <= HELD * size, f"{total} bytes on disk"


if __name__ == "__main__":
    wait_for_the_others()
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
