"""Which device and precision to use, and how much memory is free there. An automatic choice gives its reason."""

from __future__ import annotations

import torch

from calotype.core.errors import Problem, RequestError, near_matches
from calotype.core.hardware import read_memory
from calotype.spec.names import PRECISIONS

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for, or the first GPU, or the CPU."""
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise RequestError([Problem("device", f"{wanted!r} is not a device; use cpu, cuda or cuda:0", wanted)]) from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise RequestError([Problem("device", f"{wanted!r} is not here: torch sees {count} GPUs; see `calotype doctor`")])
    return device


def choose_dtype(wanted: str | None, device: torch.device) -> torch.dtype:
    """The precision asked for; else half precision on a GPU, and full on a CPU, which gains nothing from less."""
    if wanted is None:
        return torch.float16 if device.type == "cuda" else torch.float32
    if wanted not in PRECISIONS:
        raise RequestError([Problem("precision", f"{wanted!r} is not known; {near_matches(wanted, PRECISIONS)}", wanted)])
    return DTYPES[wanted]


def precision_name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def free_memory(device: torch.device) -> tuple[int, str]:
    """Bytes that can still be allocated, and where."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds but does not use is free to us.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + held, "GPU memory"
    return read_memory().available_bytes, "main memory"


def device_name(device: torch.device) -> str:
    """What a record calls the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
