"""The worker process that compiles regions: reads one request per line, writes one answer per line.

`subprocess_compiler.py` starts it, as the leader of its own process group. It exits after an idle time, as it
holds GPU memory; and when its parent exits, immediately and with all compilers it has started.
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
    """A model with only a UNet, on the meta device, that reports the given device."""
    unet = architecture.outline("unet").to(dtype).requires_grad_(False).eval()
    identity = random_identity("hollow", architecture, 0)
    return Model(architecture, identity, unet, None, [], [], dtype, device)


_NICENESS = 10
_IDLE_S = 30


class _RegionCollector:
    """Runs every region eagerly, and collects them by name."""

    def __init__(self) -> None:
        self.regions: dict[str, Region] = {}
        self.changes = 0

    def run(self, region: Region) -> Callable[..., Any]:
        self.regions[region.name] = region
        return region.walk


def compile_request(values: dict[str, Any]) -> None:
    device, collector = torch.device(values["device"]), _RegionCollector()
    architecture, dtype = Architecture.from_dict(values["architecture"]), DTYPES[values["precision"]]
    # Constants of the code, unlike weights, need real values.
    transforms(dtype, device)
    build_networks(meta_model(architecture, dtype, device), passes_named(values["passes"]), runs=collector)
    forms = tuple(
        None if signature is None else _parse_signature(signature, device) for signature in values["inputs"]
    )
    path = Path(values["path"])
    write_package(CompileRequest(values["signature"], collector.regions[values["region"]], forms), path)
    # A package that crashes the process that loads it does so here, not in the server.
    read_package(path)


def _parse_signature(signature: dict[str, Any], device: torch.device) -> RegionSignature:
    return RegionSignature(
        tuple(signature["shape"]), tuple(signature["stride"]), getattr(torch, signature["dtype"]), device
    )


def _listen(requests: SimpleQueue[str]) -> None:
    """Read requests until the parent exits, then kill the process group."""
    # Not sys.stdin, whose lock would delay the exit of an idle process.
    for line in os.fdopen(os.dup(0)):
        requests.put(line)
    # There is no such group if the process was not started as its leader.
    with suppress(ProcessLookupError):
        os.killpg(os.getpid(), SIGKILL)
    os._exit(1)


def _next(requests: SimpleQueue[str]) -> str | None:
    try:
        return requests.get(timeout=_IDLE_S)
    except Empty:
        return None


def main() -> None:
    # Inference has priority.
    os.nice(_NICENESS)
    # Compilers print to stdout; their output must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    requests: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(requests,), name="orders", daemon=True).start()
    while line := _next(requests):
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
