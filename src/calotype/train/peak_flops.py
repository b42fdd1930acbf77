"""The measured peak FLOPS of a device, the base of a training run's MFU."""

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
    """TFLOP/s of a GPU's matrix products; None on the CPU and if there is not enough memory to measure.

    The result of `calotype bench ceiling` takes precedence; otherwise it is measured once per process.
    """
    if device.type != "cuda":
        return None
    precision = precision_name(dtype)
    remembered = known_peak(device_name(device), precision)
    if remembered is not None:
        return remembered
    measured = measure_rate(matmul(precision, ON_A_GPU), device, repeats=_ROUNDS)
    if isinstance(measured, NoRate):
        _log.warning("no peak measured: %s; set trainer.ceiling_tflops to see MFU", measured.reason)
        return None
    return measured.best
