"""The script that the sandbox runs: it makes this package importable without its parent packages.

`calotype.models` may import torch, which takes time and must not be available to this process.
"""

import sys
import types
from pathlib import Path


def expose_packages() -> None:
    """Replace the parent packages by empty modules with the same search path."""
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
