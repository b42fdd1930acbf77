"""Wakes a GPU while Python is still importing, so that nobody waits for its driver afterwards.

A process's first word to an NVIDIA driver takes it a third of a second; importing torch takes several, and
does not say it. Both go on beside each other. Knows nothing of torch, which finds the GPU awake.
"""

import ctypes
from contextlib import suppress
from threading import Thread

_DRIVER = "libcuda.so.1"


def init_cuda_driver_async(device: str | None) -> Thread | None:
    """Begin to wake the GPU that torch will call `device`, or its first where none is said.

    What cannot be woken is left for torch to complain of: there may be no GPU, or none of that name.
    """
    kind, _, index = (device or "cuda").partition(":")
    if kind != "cuda" or not (index or "0").isdecimal():
        return None
    waking = Thread(target=_wake, args=(int(index or 0),), name="waking the GPU", daemon=True)
    waking.start()
    return waking


def _wake(index: int) -> None:
    with suppress(OSError):
        driver = ctypes.CDLL(_DRIVER)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        # The primary context is the one that torch uses. It lives as long as the process, as torch's would.
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
