"""The process that compiles regions: an order a line comes in, an answer a line goes out.

`elsewhere.py` starts it, as the first of its own process group. It ends when nobody has ordered anything for
a while, as it holds memory on a GPU; and with who ordered, at once and with all compilers it has started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from signal import SIGKILL
from threading import Thread
from typing import Any

import torch

from calotype.core.errors import CalotypeError
from calotype.engine.compile.aot_package import read_package, write_package
from calotype.engine.compile.region import CompileRequest, Region, RegionSignature
from calotype.engine.device import DTYPES
from calotype.engine.modules.winograd import transforms
from calotype.engine.presets import build_networks, passes_named
from calotype.models.architecture import Architecture
from calotype.models.model import Model
from calotype.models.resolve import random_identity


def meta_model(architecture: Architecture, dtype: torch.dtype, device: torch.device) -> Model:
    """With a UNet alone, on the meta device, but for what it says of itself."""
    unet = architecture.outline("unet").to(dtype).requires_grad_(False).eval()
    identity = random_identity("hollow", architecture, 0)
    return Model(architecture, identity, unet, None, [], [], dtype, device)


_NICENESS = 10
_IDLE_S = 30


class _Finder:
    """Runs every region as it is, and knows them by name."""

    def __init__(self) -> None:
        self.regions: dict[str, Region] = {}
        self.changes = 0

    def run(self, region: Region) -> Callable[..., Any]:
        self.regions[region.name] = region
        return region.walk


def compile_request(written: dict[str, Any]) -> None:
    device, found = torch.device(written["device"]), _Finder()
    architecture, dtype = Architecture.from_dict(written["architecture"]), DTYPES[written["precision"]]
    # Numbers that are part of the code, unlike weights, have to be real ones.
    transforms(dtype, device)
    build_networks(meta_model(architecture, dtype, device), passes_named(written["passes"]), runs=found)
    forms = tuple(None if form is None else _read(form, device) for form in written["inputs"])
    path = Path(written["path"])
    write_package(CompileRequest(written["signature"], found.regions[written["region"]], forms), path)
    # What would bring a process down that loads it does so here, where nobody makes pictures.
    read_package(path)


def _read(form: dict[str, Any], device: torch.device) -> RegionSignature:
    return RegionSignature(tuple(form["shape"]), tuple(form["stride"]), getattr(torch, form["dtype"]), device)


def _listen(orders: SimpleQueue[str]) -> None:
    """Take orders until who gives them is gone, and then all down that is under way for them."""
    # Not sys.stdin, which a process that ends by itself would wait for.
    for line in os.fdopen(os.dup(0)):
        orders.put(line)
    # None where it was not started as the first of a group.
    with suppress(ProcessLookupError):
        os.killpg(os.getpid(), SIGKILL)
    os._exit(1)


def _next(orders: SimpleQueue[str]) -> str | None:
    try:
        return orders.get(timeout=_IDLE_S)
    except Empty:
        return None


def main() -> None:
    # Pictures come first.
    os.nice(_NICENESS)
    # Compilers print; that is not to be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(orders,), name="orders", daemon=True).start()
    while line := _next(orders):
        error = None
        try:
            compile_request(json.loads(line))
        except CalotypeError as raised:
            error = str(raised)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"[:500]
        print(json.dumps({"error": error}), file=answers, flush=True)


if __name__ == "__main__":
    main()
