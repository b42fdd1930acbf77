"""Initializes the CUDA driver in a thread while Python imports torch.

The first CUDA call of a process takes a third of a second. Importing torch takes several seconds and does not
make that call, so both can run in parallel.
"""

import ctypes
from contextlib import suppress
from threading import Thread

_DRIVER = "libcuda.so.1"


def init_cuda_driver_async(device: str | None) -> Thread | None:
    """Start to initialize the GPU that torch calls `device`, by default the first one.

    Errors are left to torch to report: there may be no GPU, or none of that name.
    """
    kind, _, index = (device or "cuda").partition(":")
    if kind != "cuda" or not (index or "0").isdecimal():
        return None
    thread = Thread(target=_init_driver, args=(int(index or 0),), name="CUDA driver init", daemon=True)
    thread.start()
    return thread


def _init_driver(index: int) -> None:
    with suppress(OSError):
        driver = ctypes.CDLL(_DRIVER)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        # torch uses the primary context too. It lives as long as the process, as with torch.
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
