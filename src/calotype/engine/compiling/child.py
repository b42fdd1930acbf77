"""The process that compiles one region: reads an order from its standard input. See `elsewhere.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from calotype.engine.compiling.hollow import hollow_model
from calotype.engine.compiling.package import write_package
from calotype.engine.device import DTYPES
from calotype.engine.network.region import Form, Order, Region
from calotype.engine.network.winograd import transforms
from calotype.engine.presets import passes_named, put_together
from calotype.models.architecture import Architecture

_NICENESS = 10


class _Finder:
    """Runs every region as it is, and knows them by name."""

    def __init__(self) -> None:
        self.regions: dict[str, Region] = {}
        self.changes = 0

    def run(self, region: Region) -> Callable[..., Any]:
        self.regions[region.name] = region
        return region.walk


def carry_out(written: dict[str, Any]) -> None:
    device, found = torch.device(written["device"]), _Finder()
    architecture, dtype = Architecture.from_dict(written["architecture"]), DTYPES[written["precision"]]
    # Numbers that are part of the code, unlike weights, have to be real ones.
    transforms(dtype, device)
    put_together(hollow_model(architecture, dtype, device), passes_named(written["passes"]), runs=found)
    forms = tuple(None if form is None else _read(form, device) for form in written["inputs"])
    write_package(Order(written["signature"], found.regions[written["region"]], forms), Path(written["path"]))


def _read(form: dict[str, Any], device: torch.device) -> Form:
    return Form(tuple(form["shape"]), tuple(form["stride"]), getattr(torch, form["dtype"]), device)


if __name__ == "__main__":
    # Pictures come first.
    os.nice(_NICENESS)
    carry_out(json.load(sys.stdin))
