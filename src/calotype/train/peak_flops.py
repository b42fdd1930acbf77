"""The ceiling that shares of a training run are told from. Knows nothing of what is trained."""

from __future__ import annotations

import logging
from functools import cache

import torch

from calotype.engine.device import device_name, precision_name
from calotype.engine.device_peaks import known_peak
from calotype.engine.microbenchmarks import ON_A_GPU, matmul, measure_rate
from calotype.spec.records.device_peak import NoRate

_log = logging.getLogger(__name__)

_ROUNDS = 3


@cache
def measured_peak(device: torch.device, dtype: torch.dtype) -> float | None:
    """TFLOP/s of a GPU's matrix products; None on the CPU, and where there is no memory for it.

    What `calotype bench ceiling` remembers counts; else it is measured once in a process.
    """
    if device.type != "cuda":
        return None
    precision = precision_name(dtype)
    remembered = known_peak(device_name(device), precision)
    if remembered is not None:
        return remembered
    found = measure_rate(matmul(precision, ON_A_GPU), device, repeats=_ROUNDS)
    if isinstance(found, NoRate):
        _log.warning("no ceiling: %s; say trainer.ceiling_tflops to see MFU", found.reason)
        return None
    return found.best
