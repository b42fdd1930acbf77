"""Decides whether a tensor is processed by Triton or by plain torch."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_WIDEST_ROW = 16384
_HOPPER = (9, 0)
_MULTIPROCESSORS = 132
_GLUON = ("3.6.", "3.7.")
"""Versions of Triton whose Gluon our kernels support: its interface is not stable."""


def runs_triton(x: Tensor, *, row: int = 1, fp8: bool = False) -> bool:
    """Whether the kernels support `x`: a supported GPU and dtype, and no gradient required.

    `row` is the number of elements that one program holds at once, `fp8` whether it writes e4m3.
    """
    if torch.compiler.is_compiling():
        return False  # a compiler joins the plain operations, and may join more to them
    if not x.is_cuda or x.dtype not in _DTYPES or x.numel() == 0 or row > _WIDEST_ROW:
        return False
    if x.requires_grad and torch.is_grad_enabled():
        return False
    return runs_triton_on(x.device, fp8=fp8)


def runs_triton_on(device: torch.device, *, fp8: bool = False) -> bool:
    """Whether the kernels run on the device at all."""
    if device.type != "cuda" or not _has_triton():
        return False
    # Ampere is the oldest with bf16, Ada the oldest with e4m3.
    return capability(device) >= ((8, 9) if fp8 else (8, 0))


def runs_gluon_on(device: torch.device) -> bool:
    """Whether the Gluon kernels run on the device: they need Hopper's instructions."""
    return runs_triton_on(device) and capability(device) == _HOPPER and _has_gluon()


@cache
def _has_gluon() -> bool:
    import triton  # noqa: PLC0415 - a machine may have none

    return triton.__version__.startswith(_GLUON)


@cache
def _has_triton() -> bool:
    return torch.version.cuda is not None and find_spec("triton") is not None


@cache
def capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def num_multiprocessors(device: torch.device) -> int:
    """The device's number, or an H200's without a GPU: kernels are interpreted and compiled there too."""
    if device.type != "cuda":
        return _MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count
