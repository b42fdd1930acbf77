"""Regions compiled in a process of their own, so that whoever makes pictures meanwhile hardly notices.

Compiling takes minutes of a processor, keeps Python's lock for seconds at a time, and changes what modules do
while it looks at them. Knows nothing of engines.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calotype.core.errors import CalotypeError
from calotype.engine.compiling.package import ENDING
from calotype.engine.device import precision_name
from calotype.engine.network.region import Form, Order
from calotype.models.model import Model


class Elsewhere:
    """`Compile` for the regions of one model put together by passes."""

    def __init__(self, model: Model, passes: Sequence[str]) -> None:
        self._about = {
            "architecture": model.architecture.as_dict(),
            "passes": list(passes),
            "precision": precision_name(model.dtype),
            "device": str(model.device),
        }
        self._place = TemporaryDirectory(prefix="calotype-compiled-")

    def __call__(self, order: Order) -> Path:
        path = Path(self._place.name) / f"{order.signature}{ENDING}"
        written = {
            **self._about,
            "signature": order.signature,
            "region": order.region.name,
            "inputs": [None if form is None else _written(form) for form in order.forms],
            "path": str(path),
        }
        _ran(json.dumps(written))
        return path


def _written(form: Form) -> dict[str, Any]:
    return {"shape": form.shape, "stride": form.stride, "dtype": str(form.dtype).removeprefix("torch.")}


def _ran(order: str) -> None:
    """The order carried out by another process; it does not outlive this one."""
    child = subprocess.Popen(
        [sys.executable, "-m", "calotype.engine.compiling.child"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    atexit.register(child.kill)
    try:
        _, said = child.communicate(order)
    finally:
        atexit.unregister(child.kill)
    if child.returncode:
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
        raise CalotypeError(f"the compiler failed ({child.returncode}): {last.strip()[:300]}")
