"""Inspects model files in a subprocess, because the server does not load torch."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from calotype.core.errors import CalotypeError
from calotype.serve.service import UnavailableError

TIMEOUT_S = 120.0
_BAD_FILE = 5
_ANSWERS = (0, _BAD_FILE)


class Inspector:
    """Inspects one file at a time, and caches the result until the file changes."""

    def __init__(self) -> None:
        self._cache: dict[tuple[Path, int, int], dict[str, Any]] = {}
        self._lock = asyncio.Lock()

    async def inspect(self, path: Path) -> dict[str, Any]:
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        async with self._lock:
            if key not in self._cache:
                self._cache[key] = await _inspect(path)
            return self._cache[key]


async def _inspect(path: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "calotype", "models", "inspect", str(path.absolute()), "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, errors = await process.communicate()
    except TimeoutError:
        raise UnavailableError(f"inspecting {path.name} took more than {TIMEOUT_S:g} s; try again") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        description: dict[str, Any] = json.loads(output)
    except ValueError:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise CalotypeError(f"cannot inspect {path.name}: {' '.join(last)}") from None
    return description
