"""A region compiled into a file, and a file into something to call. Knows nothing of networks.

torch.export writes down what a region does with its inputs and weights, and inductor compiles that. The file
holds no weights. Loading it runs no compiler and asks no guards: it is machine code for one kind of inputs.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calotype.core.errors import CalotypeError
from calotype.engine.network.compiled import Made
from calotype.engine.network.region import Form, Order, Region

ENDING = ".pt2"


class _Walk(nn.Module):
    """A region as torch calls it: weights come from outside, and not one is the module's own."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self._names = list(region.weights())
        # In a list, where torch does not look for parameters.
        self._inside = [_Around(region)]

    def forward(self, inputs: list[Tensor | None], weights: list[Tensor]) -> Any:
        named = {f"module.{name}": each for name, each in zip(self._names, weights, strict=True)}
        return torch.func.functional_call(self._inside[0], named, tuple(inputs))


class _Around(nn.Module):
    """The region's module, reached by our own way through it."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self.module, self._walk = region.module, region.walk

    def forward(self, *inputs: Tensor | None) -> Any:
        return self._walk(*inputs)


_OPTIONS = {"cpp.dynamic_threads": True}
"""Else the number of threads would be what it was where this was compiled."""


@torch.inference_mode(False)
@torch.no_grad()
def write_package(order: Order, path: Path) -> None:
    """Compile a region for inputs of one kind. Takes a minute or more."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - only compiling needs it
    from torch.export import Dim, export  # noqa: PLC0415 - takes a second, and most processes only read

    region = order.region
    [device] = {form.device for form in order.forms if form is not None}
    # Nothing but forms: a compiler has no use for numbers, and there may be no room for them.
    with FakeTensorMode():
        weights = [Form.of(each)._replace(device=device).empty() for each in region.weights().values()]
        inputs = [None if form is None else form.empty() for form in order.forms]
    sizes: list[Any] = [
        {region.open_sizes[place]: Dim.DYNAMIC} if each is not None and place in region.open_sizes else None
        for place, each in enumerate(inputs)
    ]
    arguments, open_sizes = (inputs, weights), (sizes, [None for _ in weights])
    # torch warns of its own internals.
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        program = export(_Walk(region), arguments, dynamic_shapes=open_sizes, strict=False)
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs=dict(_OPTIONS)
        )


def read_package(path: Path) -> Made:
    # For one thread: what it would ask a GPU for others' sake cannot be asked while a graph is recorded.
    loaded = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
    if loaded is None:
        raise CalotypeError(f"{path} holds nothing that was compiled")
    return loaded
