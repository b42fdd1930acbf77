"""A driver that is not there, drivers that are only pretended, and a way to run calotype beside them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("stand_in_nvml.c")
_LIBRARY = "libnvidia-ml.so.1"

RunPython = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def driver_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder for each driver; the loader is sent there through LD_LIBRARY_PATH."""
    root = tmp_path_factory.mktemp("drivers")
    for name, flags in {"current": [], "old": ["-DOLD_DRIVER"], "ancient": ["-DANCIENT_DRIVER"]}.items():
        (root / name).mkdir()
        target = str(root / name / _LIBRARY)
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", *flags, "-o", target, str(_SOURCE)],
            check=True,
            timeout=300,
        )
    # An unreadable library stops the search, so that a machine with a real driver has none in these tests.
    (root / "none").mkdir()
    (root / "none" / _LIBRARY).touch()
    return {folder.name: folder for folder in root.iterdir()}


@pytest.fixture(scope="session")
def run_python(driver_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> RunPython:
    """Run Python beside one of the drivers, in an empty home, without any real card."""
    home = tmp_path_factory.mktemp("home")

    def run(*arguments: str, driver: str = "none", **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CALOTYPE_", "XDG_", "COLUMNS", "NO_COLOR", "FORCE_COLOR"))
        }
        kept |= {
            "HOME": str(home),
            "LD_LIBRARY_PATH": str(driver_folders[driver]),
            "CUDA_VISIBLE_DEVICES": "",
        }
        return subprocess.run(
            [sys.executable, *arguments],
            env=kept | environment,
            cwd=home,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    return run
