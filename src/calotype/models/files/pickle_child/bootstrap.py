"""The script the sandbox runs: makes this package importable without running the packages around it.

`calotype.models` may import torch, which this process must neither wait for nor have at hand.
"""

import sys
import types
from pathlib import Path


def expose_packages() -> None:
    """Put empty stand-ins where the surrounding packages would be; their modules are found as always."""
    folder = Path(__file__).resolve().parent.parent
    for name in ("calotype.models.files", "calotype.models", "calotype"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
        folder = folder.parent


if __name__ == "__main__":
    expose_packages()
    from calotype.models.files.pickle_child.main import main

    main(sys.argv[1])
