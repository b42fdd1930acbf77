"""A run to be killed in the middle of saving: told FOLDER and POINT, it says when it is there, and stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from calotype.train.checkpoint import BackgroundSaver, CheckpointManager
from tests.unit.train.checkpoint.states import own_state, small_state


def main(folder: Path, point: str) -> None:
    store = CheckpointManager(folder, keep_last=3)
    num_barriers = 0

    def stay() -> None:
        print("here", flush=True)
        sys.stdin.read()

    def barrier() -> None:
        nonlocal num_barriers
        num_barriers += 1
        if point == "before the manifest" and num_barriers == 2:
            stay()

    def stay_instead(fd: object) -> None:
        stay()

    BackgroundSaver(store).save_now(1, small_state(1), own_state(1))
    if point == "in the first file":
        os.fsync = stay_instead
    saver = BackgroundSaver(store, barrier=barrier)
    saver.save(2, small_state(2), own_state(2))
    saver.wait()
    print("was not killed", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
