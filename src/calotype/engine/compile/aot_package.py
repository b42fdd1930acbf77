"""A region compiled into a file, and a file into something to call. Knows nothing of networks.

torch.export writes down what a region does with its inputs and weights, and inductor compiles that. The file
holds no weights. Loading it runs no compiler and asks no guards: it is machine code for one kind of inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calotype.core.errors import DISK_FULL_CODES, CalotypeError, DiskFullError
from calotype.engine.compile.manager import CompiledFunctions
from calotype.engine.compile.region import CompileRequest, Region, RegionSignature
from calotype.engine.modules.onednn import available

SUFFIX = ".pt2"


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


_OPTIONS = {"cpp.dynamic_threads": True, "aot_inductor.custom_op_libs": [":libstdc++.so.6"]}
"""Else the number of threads would be what it was where this was compiled; and a compiler that links its C++
library in would put a second one beside torch's, which ends the process."""
_LONGEST = 500
"""Of what a compiler says."""
OTHER_COMPILER = "a C++ compiler that links its own library in makes such: name another with CXX"


def write_package(order: CompileRequest, path: Path) -> None:
    """Compile a region for inputs of one kind. Takes a minute or more."""
    try:
        package = _compiled(order)
    # Whatever a compiler may raise, in words.
    except Exception as error:
        raise _explained(error) from error
    path.write_bytes(package.getbuffer())


@torch.inference_mode(False)
@torch.no_grad()
def _compiled(order: CompileRequest) -> BytesIO:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - only compiling needs it
    from torch.export import Dim, export  # noqa: PLC0415 - takes a second, and most processes only read

    region = order.region
    [device] = {form.device for form in order.forms if form is not None}
    # Nothing but forms: a compiler has no use for numbers, and there may be no room for them.
    with FakeTensorMode():
        weights = [
            RegionSignature.of(each)._replace(device=device).empty() for each in region.weights().values()
        ]
        inputs = [None if form is None else form.empty() for form in order.forms]
    sizes: list[Any] = [
        {region.open_sizes[place]: Dim.DYNAMIC} if each is not None and place in region.open_sizes else None
        for place, each in enumerate(inputs)
    ]
    arguments, open_sizes = (inputs, weights), (sizes, [None for _ in weights])
    # Not to a file: where a disk is full torch's own writer ends the process instead of raising.
    package = BytesIO()
    # torch warns of its own internals.
    with warnings.catch_warnings(action="ignore", category=FutureWarning), _products_of_given_weights():
        program = export(_Walk(region), arguments, dynamic_shapes=open_sizes, strict=False)
        # While it exports, torch has cuDNN switched off, and remembers how convolutions lay out their
        # pictures without. Inductor would believe it, and read channels-last pictures as others.
        FakeTensorMode.cache_clear()
        torch._inductor.aoti_compile_and_package(
            program, package_path=package, inductor_configs=dict(_OPTIONS)
        )
    return package


@contextmanager
def _products_of_given_weights() -> Iterator[None]:
    """Inductor knows oneDNN's products for weights that are constants alone; ours come at each call."""
    if not available():
        yield
        return
    from torch._inductor import ir, mkldnn_ir  # noqa: PLC0415 - only compiling needs it
    from torch._inductor.lowering import lowerings  # noqa: PLC0415 - the same

    def lowered(*given: Any) -> Any:
        return ir.TensorBox.create(mkldnn_ir.LinearUnary.create(*given))

    product = torch.ops.mkldnn._linear_pointwise.default
    before = lowerings[product]
    lowerings[product] = lowered
    try:
        yield
    finally:
        lowerings[product] = before


def _explained(error: Exception) -> CalotypeError:
    # torch wraps what its compiler was stopped by.
    inner = getattr(error, "inner_exception", error)
    said = " ".join(f"{type(inner).__name__}: {inner}".split())[:_LONGEST]
    if isinstance(inner, OSError):
        from torch._inductor.runtime.cache_dir_utils import cache_dir  # noqa: PLC0415 - only a failure needs it

        kind = DiskFullError if inner.errno in DISK_FULL_CODES else CalotypeError
        return kind(f"{said} (while compiling in {cache_dir()}); make room there or set TMPDIR")
    if type(inner).__name__ == "InvalidCxxCompiler":
        said += "; install g++, or name another compiler with CXX"
    return CalotypeError(said)


def read_package(path: Path) -> CompiledFunctions:
    # For one thread: what it would ask a GPU for others' sake cannot be asked while a graph is recorded.
    try:
        loaded = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
    except RuntimeError as error:
        said = " ".join(str(error).split())[:_LONGEST]
        raise CalotypeError(f"what was compiled cannot be loaded: {said}; {OTHER_COMPILER}") from error
    if loaded is None:
        raise CalotypeError(f"{path} holds nothing that was compiled")
    return loaded
