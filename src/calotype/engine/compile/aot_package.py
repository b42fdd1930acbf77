"""Compiles a region into an AOTInductor package, and loads a package.

torch.export traces the region's computation on its inputs and weights, and inductor compiles the trace. The
file holds no weights. Loading it runs no compiler and evaluates no guards: it is machine code for one kind
of inputs.
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


class _ExportModule(nn.Module):
    """A region for torch.export: weights are inputs, and the module has no parameters of its own."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self._names = list(region.weights())
        # In a list, where torch does not search for parameters.
        self._wrapper = [_ForwardWrapper(region)]

    def forward(self, inputs: list[Tensor | None], weights: list[Tensor]) -> Any:
        named = {f"module.{name}": each for name, each in zip(self._names, weights, strict=True)}
        return torch.func.functional_call(self._wrapper[0], named, tuple(inputs))


class _ForwardWrapper(nn.Module):
    """Wraps the region's module with our own forward pass."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self.module, self._walk = region.module, region.walk

    def forward(self, *inputs: Tensor | None) -> Any:
        return self._walk(*inputs)


_OPTIONS = {"cpp.dynamic_threads": True, "aot_inductor.custom_op_libs": [":libstdc++.so.6"]}
"""Without the first option the number of threads is fixed at compile time. Without the second, a compiler
that links its C++ library statically adds a second one beside torch's, which crashes the process."""
_MAX_MESSAGE_LENGTH = 500
"""Characters of a compiler's message."""
OTHER_COMPILER = "a C++ compiler that links its library statically causes this; set CXX to another compiler"


def write_package(request: CompileRequest, path: Path) -> None:
    """Compile a region for one kind of inputs. Takes a minute or more."""
    try:
        package = _compile(request)
    # A compiler may raise anything.
    except Exception as error:
        raise _as_error(error) from error
    path.write_bytes(package.getbuffer())


@torch.inference_mode(False)
@torch.no_grad()
def _compile(request: CompileRequest) -> BytesIO:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - only compiling needs it
    from torch.export import Dim, export  # noqa: PLC0415 - takes a second, and most processes only read

    region = request.region
    [device] = {form.device for form in request.forms if form is not None}
    # Fake tensors: a compiler does not need values, and there may be no memory for them.
    with FakeTensorMode():
        weights = [
            RegionSignature.of(each)._replace(device=device).empty() for each in region.weights().values()
        ]
        inputs = [None if form is None else form.empty() for form in request.forms]
    sizes: list[Any] = [
        {region.open_sizes[index]: Dim.DYNAMIC} if each is not None and index in region.open_sizes else None
        for index, each in enumerate(inputs)
    ]
    arguments, open_sizes = (inputs, weights), (sizes, [None for _ in weights])
    # Not to a file: on a full disk torch's own writer aborts the process instead of raising.
    package = BytesIO()
    # torch warns about its own internals.
    with warnings.catch_warnings(action="ignore", category=FutureWarning), _lower_onednn_linear():
        program = export(_ExportModule(region), arguments, dynamic_shapes=open_sizes, strict=False)
        # During export torch disables cuDNN, and caches the convolutions' output layouts without it.
        # Inductor would trust the cache, and misread channels-last outputs.
        FakeTensorMode.cache_clear()
        torch._inductor.aoti_compile_and_package(
            program, package_path=package, inductor_configs=dict(_OPTIONS)
        )
    return package


@contextmanager
def _lower_onednn_linear() -> Iterator[None]:
    """Lower oneDNN products with weights as inputs; inductor lowers them only for constant weights."""
    if not available():
        yield
        return
    from torch._inductor import ir, mkldnn_ir  # noqa: PLC0415 - only compiling needs it
    from torch._inductor.lowering import lowerings  # noqa: PLC0415 - the same

    def lower(*arguments_: Any) -> Any:
        return ir.TensorBox.create(mkldnn_ir.LinearUnary.create(*arguments_))

    op = torch.ops.mkldnn._linear_pointwise.default
    before = lowerings[op]
    lowerings[op] = lower
    try:
        yield
    finally:
        lowerings[op] = before


def _as_error(error: Exception) -> CalotypeError:
    # torch wraps the compiler's error.
    inner = getattr(error, "inner_exception", error)
    message = " ".join(f"{type(inner).__name__}: {inner}".split())[:_MAX_MESSAGE_LENGTH]
    if isinstance(inner, OSError):
        from torch._inductor.runtime.cache_dir_utils import cache_dir  # noqa: PLC0415 - only a failure needs it

        kind = DiskFullError if inner.errno in DISK_FULL_CODES else CalotypeError
        return kind(f"{message} (while compiling in {cache_dir()}); free space there or set TMPDIR")
    if type(inner).__name__ == "InvalidCxxCompiler":
        message += "; install g++, or set CXX to another compiler"
    return CalotypeError(message)


def read_package(path: Path) -> CompiledFunctions:
    # Single-threaded: the multi-threaded runner's CUDA calls are not allowed during a graph capture.
    try:
        loaded = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
    except RuntimeError as error:
        message = " ".join(str(error).split())[:_MAX_MESSAGE_LENGTH]
        raise CalotypeError(f"the compiled region cannot be loaded: {message}; {OTHER_COMPILER}") from error
    if loaded is None:
        raise CalotypeError(f"{path} holds no compiled region")
    return loaded
