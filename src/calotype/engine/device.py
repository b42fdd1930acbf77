"""Chooses device and precision, and reads the free memory. Logs the reason for an automatic choice."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from calotype.core.errors import DoesNotFitError, Problem, RequestError, did_you_mean
from calotype.core.hardware import read_memory
from calotype.spec.constants import PRECISIONS

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

_log = logging.getLogger(__name__)


def choose_device(requested: str | None) -> torch.device:
    """The requested device, or the first GPU, or the CPU."""
    if requested is None:
        found = torch.cuda.is_available()
        _log.info("device: %s", "cuda, torch sees a GPU" if found else "cpu, torch sees no GPU")
        return torch.device("cuda" if found else "cpu")
    try:
        device = torch.device(requested)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        rule = f"{requested[:60]!r} is not a device; use cpu, cuda or cuda:0"
        raise RequestError([Problem("device", rule, requested[:60])])
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        rule = f"{requested!r} does not exist: torch sees {count} GPUs; see `calotype doctor`"
        raise RequestError([Problem("device", rule, requested)])
    return device


def choose_dtype(requested: str | None, device: torch.device) -> torch.dtype:
    """The requested precision; else fp16 on a GPU, and fp32 on a CPU, which gains nothing from less."""
    if requested is None:
        chosen = "fp16" if device.type == "cuda" else "fp32"
        _log.info("precision: %s, the default on %s", chosen, device.type)
        return DTYPES[chosen]
    if requested not in PRECISIONS:
        rule = f"{requested[:60]!r} is not known; {did_you_mean(requested[:60], PRECISIONS)}"
        raise RequestError([Problem("precision", rule, requested[:60])])
    return DTYPES[requested]


def pack_memory(device: torch.device) -> None:
    """Switch torch's allocator to expandable segments, in the whole process.

    Freed memory can then serve any allocation. Otherwise it stays in blocks of the requested sizes, and
    several hundred MB of them fit nothing after a model's weights have changed layout.
    """
    if device.type == "cuda":
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")


_OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
"""torch's message on a CPU, CUDA's own message, and that of its libraries."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; torch's own class is one of several."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY_MESSAGES)


@contextmanager
def explain_out_of_memory(model: str) -> Iterator[None]:
    """Explain what to do if a model does not fit while it loads."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        why = str(error).partition("\n")[0]
        fix = "stop other programs on the device, choose another device with --device, or a smaller model"
        raise DoesNotFitError(f"not enough memory to load {model}: {why}; {fix}") from error


def precision_name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def free_memory(device: torch.device) -> tuple[int, str]:
    """Bytes that can still be allocated, and where."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that torch has reserved but not allocated is free to us.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + cached, "GPU memory"
    available = read_memory().available_bytes
    # Without a number there is no plan: the request is just tried.
    return (sys.maxsize if available is None else available), "main memory"


def total_memory(device: torch.device) -> int:
    """Total bytes of memory, used or free."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    memory = read_memory()
    return memory.limit_bytes or memory.total_bytes or sys.maxsize


def device_name(device: torch.device) -> str:
    """The device's name in records."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
