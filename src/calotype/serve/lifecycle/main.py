"""The server process of a deployment in the background: `python -m calotype.serve.lifecycle FOLDER`."""

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
    parser.add_argument("--news-fd", type=int, help="number of an inherited pipe that is told how it goes")
    parser.add_argument("--held-fd", type=int, help="number of an inherited descriptor that holds the folder")
    chosen = parser.parse_args()
    held = chosen.held_fd is not None
    if held:
        # Workers are not to hold it when this process has gone.
        os.set_inheritable(chosen.held_fd, False)
    return run(DeploymentDir(chosen.folder), ReadinessNotifier(chosen.news_fd), held=held)


def run(place: DeploymentDir, news: ReadinessNotifier, *, held: bool = False) -> int:
    """Serve what a folder's plan says; the exit code of the process. `held` if nobody else can do so."""
    log_as_json()
    news.notify("begun", str(os.getpid()))
    try:
        with nullcontext() if held else place.held():
            asyncio.run(_serve(place, news))
    except CalotypeError as error:
        logging.getLogger(__name__).error("%s", error)
        news.notify("failed", str(error))
        return int(error.exit_code)
    return 0


async def _serve(place: DeploymentDir, news: ReadinessNotifier) -> None:
    bounding = asyncio.create_task(rotate_in_background(place.log))
    try:
        await serve(place.plan(), place, news)
    finally:
        bounding.cancel()


def log_as_json() -> None:
    """One JSON object a line, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
