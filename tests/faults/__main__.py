"""The long form: `python -m tests.faults --kills 50`. Exits with 0 when everything held."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from uuid import uuid4

from tests.faults.storm import MARK, Storm


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="decides who dies when")
    parser.add_argument("--steps", type=int, default=4, help="of each job")
    parser.add_argument("--engine", default="nothing", help="or calotype: the embedded model")
    parser.add_argument("--keep", action="store_true", help="leave the folder for looking at")
    chosen = parser.parse_args()
    os.environ[MARK] = uuid4().hex
    folder = Path(tempfile.mkdtemp(prefix="calotype-faults-"))
    print(f"in {folder}", flush=True)
    storm = Storm(folder, chosen.seed, chosen.engine, chosen.steps, lambda text: print(text, flush=True))
    died = storm.run(chosen.kills)
    print(f"everything held: {died}")
    if not chosen.keep:
        import shutil

        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
