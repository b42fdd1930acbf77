"""What Triton does before its first kernel, done while weights are still being read.

Triton knows its compiled kernels by a digest of its own files, among them a library of hundreds of megabytes,
and takes half a second for that. Knows nothing of kernels.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import torch


def prepare_triton(device: torch.device) -> Thread | None:
    """Begin with it, where kernels will be run by Triton."""
    if device.type != "cuda":
        return None
    preparing = Thread(target=_prepare, name="preparing Triton", daemon=True)
    preparing.start()
    return preparing


def _prepare() -> None:
    # There may be no Triton, or one that keeps it elsewhere or is broken: its first kernel waits, or says so.
    with suppress(Exception):
        from triton.runtime.cache import triton_key  # noqa: PLC0415 - seconds to import

        triton_key()
