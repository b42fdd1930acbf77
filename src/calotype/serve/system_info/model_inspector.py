"""What model files are, asked of a process of its own: the server loads no torch. Knows nothing of HTTP."""

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
    """Looks at one file at a time, and remembers what it saw while the file stays as it is."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Path, int, int], dict[str, Any]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def inspect(self, path: Path) -> dict[str, Any]:
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        async with self._one_at_a_time:
            if key not in self._seen:
                self._seen[key] = await _asked(path)
            return self._seen[key]


async def _asked(path: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "calotype", "models", "inspect", str(path.absolute()), "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            said, trouble = await process.communicate()
    except TimeoutError:
        raise UnavailableError(f"{path.name} was not read within {TIMEOUT_S:g} s; try again") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        found: dict[str, Any] = json.loads(said)
    except ValueError:
        last = trouble.decode(errors="replace").strip().splitlines()[-1:]
        raise CalotypeError(f"{path.name} cannot be looked at: {' '.join(last)}") from None
    return found
