"""Podman as tests use it: a base made of Debian's packages, images built on it, networks for containers.

No registry of images is needed. Knows nothing of what is inside the images.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("python3", "python3-venv")
# Podman's usual limits are more than some machines give.
LIMITS = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")
_MINUTES = 600.0


def podman(*words: str, check: bool = True) -> str:
    """What a command prints; its errors are told in full."""
    return _run(["podman", "--runtime=runc", *words], check=check)


def _run(words: Sequence[str], *, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_MINUTES, check=False)
    assert not check or done.returncode == 0, (
        f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout.strip()


def base_and_wheels(folder: Path, extra: str) -> tuple[str, Path]:
    """An image to start from, and a folder with all that an extra of ours needs; made side by side."""
    with ThreadPoolExecutor() as pool:
        base, wheels = pool.submit(_base, folder), pool.submit(_wheels, folder, extra)
        return base.result(), wheels.result()


def _base(folder: Path) -> str:
    """Debian with Python. It is kept: it changes with Debian, not with us."""
    name = "localhost/calotype-tests-base:" + hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    if subprocess.run(["podman", "image", "exists", name], check=False, timeout=300).returncode:
        tar = folder / "base.tar"
        unread = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")]
        _run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(PACKAGES)}",
                *unread,
                "bookworm",
                str(tar),
            ]
        )
        podman("import", str(tar), name)
        tar.unlink()
    return name


def _wheels(folder: Path, extra: str) -> Path:
    """As pip on this machine finds them, for Debian's Python."""
    needed = folder / "requirements.txt"
    script = folder / "requirements.py"
    script.write_bytes((REPOSITORY / "containers" / "requirements.py").read_bytes())
    (folder / "pyproject.toml").write_bytes((REPOSITORY / "pyproject.toml").read_bytes())
    needed.write_text(_run([sys.executable, str(script), extra]) + "\nhatchling\n")
    wheels = folder / "wheels"
    which = ["--only-binary=:all:", "--python-version=3.11", f"--constraint={REPOSITORY / 'constraints.txt'}"]
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            *which,
            f"--dest={wheels}",
            f"--requirement={needed}",
        ]
    )
    return wheels


def build(dockerfile: str, context: Path, base: str, wheels: Path) -> str:
    """An image without any network; the name it got."""
    name = f"localhost/calotype-tests:{uuid.uuid4().hex[:12]}"
    arguments = [f"--build-arg={each}" for each in (f"BASE={base}", "PIP_NO_INDEX=1", "PACKAGES=")]
    podman(
        "build",
        *LIMITS,
        "--network=none",
        # Health checks are Docker's.
        "--format=docker",
        "--layers=false",
        f"--build-context=wheels={wheels}",
        *arguments,
        f"--file={context / dockerfile}",
        f"--tag={name}",
        str(context),
    )
    return name


@contextmanager
def network() -> Iterator[str]:
    """The name of a network namespace with a loopback of its own: nobody else is disturbed or let in."""
    name = f"calotype-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    _run(["ip", "netns", "add", name])
    try:
        _run(["ip", "-n", name, "link", "set", "lo", "up"])
        yield name
    finally:
        _run(["ip", "netns", "delete", name])


def inside(namespace: str, *words: str) -> str:
    """What a program of this machine prints that runs in the network of containers."""
    return _run(["ip", "netns", "exec", namespace, *words])
