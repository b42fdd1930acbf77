"""Runs Triton's initialization before its first kernel while weights are still being read.

Triton knows its compiled kernels by a digest of its own files, among them a library of hundreds of megabytes,
and takes half a second for that.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import torch


def prepare_triton(device: torch.device) -> Thread | None:
    """Start the initialization if Triton will run kernels."""
    if device.type != "cuda":
        return None
    preparing = Thread(target=_prepare, name="preparing Triton", daemon=True)
    preparing.start()
    return preparing


def _prepare() -> None:
    # Triton may be missing, broken, or store this elsewhere: its first kernel then waits or raises.
    with suppress(Exception):
        from triton.runtime.cache import triton_key  # noqa: PLC0415 - seconds to import

        triton_key()
