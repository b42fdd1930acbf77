"""The server process of a background deployment: `python -m calotype.serve.lifecycle FOLDER`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from calotype.core.errors import CalotypeError
from calotype.serve.lifecycle.log_rotation import rotate_in_background
from calotype.serve.lifecycle.readiness_notifier import ReadinessNotifier
from calotype.serve.lifecycle.registry import DeploymentDir
from calotype.serve.lifecycle.server import serve
from calotype.serve.log_format import JsonFormatter


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m calotype.serve.lifecycle", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--news-fd", type=int, help="inherited pipe to which readiness messages are written")
    parser.add_argument("--held-fd", type=int, help="inherited descriptor that holds the folder's lock")
    options = parser.parse_args()
    held = options.held_fd is not None
    if held:
        # Workers must not inherit the lock.
        os.set_inheritable(options.held_fd, False)
    return run(DeploymentDir(options.folder), ReadinessNotifier(options.news_fd), held=held)


def run(directory: DeploymentDir, notifier: ReadinessNotifier, *, held: bool = False) -> int:
    """Serve the plan in a folder; returns the exit code. `held` if this process already holds the lock."""
    log_as_json()
    notifier.notify("begun", str(os.getpid()))
    try:
        with nullcontext() if held else directory.held():
            asyncio.run(_serve(directory, notifier))
    except CalotypeError as error:
        logging.getLogger(__name__).error("%s", error)
        notifier.notify("failed", str(error))
        return int(error.exit_code)
    return 0


async def _serve(directory: DeploymentDir, notifier: ReadinessNotifier) -> None:
    rotation = asyncio.create_task(rotate_in_background(directory.log))
    try:
        await serve(directory.plan(), directory, notifier)
    finally:
        rotation.cancel()


def log_as_json() -> None:
    """Log one JSON object per line to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
