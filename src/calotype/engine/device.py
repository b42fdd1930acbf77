"""Which device and precision to use, and how much memory is free there. An automatic choice says why."""

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


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for, or the first GPU, or the CPU."""
    if wanted is None:
        found = torch.cuda.is_available()
        _log.info("device: %s", "cuda, a GPU is here" if found else "cpu, torch sees no GPU")
        return torch.device("cuda" if found else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        rule = f"{wanted[:60]!r} is not a device; use cpu, cuda or cuda:0"
        raise RequestError([Problem("device", rule, wanted[:60])])
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        rule = f"{wanted!r} is not here: torch sees {count} GPUs; see `calotype doctor`"
        raise RequestError([Problem("device", rule, wanted)])
    return device


def choose_dtype(wanted: str | None, device: torch.device) -> torch.dtype:
    """The precision asked for; else half on a GPU, and full on a CPU, which gains nothing from less."""
    if wanted is None:
        chosen = "fp16" if device.type == "cuda" else "fp32"
        _log.info("precision: %s, the usual on %s", chosen, device.type)
        return DTYPES[chosen]
    if wanted not in PRECISIONS:
        rule = f"{wanted[:60]!r} is not known; {did_you_mean(wanted[:60], PRECISIONS)}"
        raise RequestError([Problem("precision", rule, wanted[:60])])
    return DTYPES[wanted]


def pack_memory(device: torch.device) -> None:
    """Have torch cut memory from segments that grow from now on, in the whole process.

    What is freed can then be used for anything. Otherwise it stays in pieces of the size it was asked for in,
    of which several hundred MB fit nothing when a model's weights have been laid out anew.
    """
    if device.type == "cuda":
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")


_NO_ROOM = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
"""What torch says on a CPU; what CUDA says to who asks it without torch; what its libraries make of that."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that there was no room. torch's own is one of several."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_ROOM)


@contextmanager
def explain_out_of_memory(model: str) -> Iterator[None]:
    """Say what to do where a model does not fit while it loads."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        why = str(error).partition("\n")[0]
        fix = "end what else uses the device, choose another with --device, or a smaller model"
        raise DoesNotFitError(f"there is no room to load {model}: {why}; {fix}") from error


def precision_name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def free_memory(device: torch.device) -> tuple[int, str]:
    """Bytes that can still be allocated, and where."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds but does not use is free to us.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + held, "GPU memory"
    available = read_memory().available_bytes
    # A system that does not say how much there is cannot be planned for; it is tried.
    return (sys.maxsize if available is None else available), "main memory"


def total_memory(device: torch.device) -> int:
    """Bytes that there are in all, whoever has them now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    memory = read_memory()
    return memory.limit_bytes or memory.total_bytes or sys.maxsize


def device_name(device: torch.device) -> str:
    """What a record calls the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
