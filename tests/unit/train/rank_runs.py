"""A program: command lines of `calotype`, as a JSON list of lists, one after the other; for torchrun."""

from __future__ import annotations

import json
import sys

from calotype.cli.main import run

if __name__ == "__main__":
    sys.exit(max(run(line) for line in json.loads(sys.argv[1])))
