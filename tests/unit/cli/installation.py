"""Calotype's wheel in a virtual environment of its own, with the packages of the extras that a test names.

The environment sees no site-packages but its own. Into that pip installs the wheel; the packages which the
wheel's metadata requires, and those that they require in turn, are links to this environment's files. So a
package outside that list is absent as after `pip install calotype`: its modules cannot be imported,
`find_spec` does not find them, and `importlib.metadata` does not know it. Nothing is downloaded twice.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Installation:
    """A virtual environment."""

    folder: Path

    def run(self, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """One program of the environment, such as `calotype` or `python`, with no way to this one."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
        return subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            env={**kept, "HF_HUB_OFFLINE": "1", **environment},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def built_wheel(folder: Path) -> Path:
    """The wheel of this source tree, built as a release is."""
    _pip("wheel", "--no-deps", f"--wheel-dir={folder}", str(ROOT))
    (wheel,) = folder.glob("calotype-*.whl")
    return wheel


def installed(wheel: Path, folder: Path, extras: Sequence[str] = ()) -> Installation:
    """The wheel in a new environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=300)
    _pip("--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel))
    (site,) = (folder / "lib").glob("python*/site-packages")
    for found in _required(_requirements(wheel), extras).values():
        _link(found, site)
    return Installation(folder)


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def _requirements(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().split("\n\n", 1)[0].splitlines()
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


def _required(requirements: Sequence[str], extras: Sequence[str]) -> dict[str, Distribution]:
    """Every distribution that these lead to, by its canonical name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()

    def add(lines: Sequence[str], chosen: Sequence[str]) -> None:
        for requirement in map(Requirement, lines):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *chosen)):
                continue
            name = canonicalize_name(requirement.name)
            wanted = [extra for extra in ("", *requirement.extras) if (name, extra) not in seen]
            if not wanted:
                continue
            seen.update((name, extra) for extra in wanted)
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                # Such as the CUDA libraries of torch, where this environment has the build for CPUs.
                continue
            add(found[name].requires or [], wanted)

    add(requirements, extras)
    return found


def _link(found: Distribution, site: Path) -> None:
    """A link to each top-level package, and to each file elsewhere: distributions may share a namespace."""
    files = [file for file in found.files or () if file.parts[0] != ".." and "__pycache__" not in file.parts]
    packages = {file.parts[0] for file in files if file.parts[1:] == ("__init__.py",)}
    for file in files:
        parts = file.parts[:1] if file.parts[0] in packages else file.parts
        place = site.joinpath(*parts)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(Path(str(found.locate_file(Path(*parts)))))
