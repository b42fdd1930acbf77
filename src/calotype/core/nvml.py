"""Reads the GPUs of this machine through NVML (nvidia-ml-py), without changing them.

Each survey opens and closes NVML; the energy meter keeps it open. torch may see fewer GPUs
(CUDA_VISIBLE_DEVICES), in another order.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pynvml

from calotype.core.hardware import Gpu, GpuSurvey, GpuTrouble, MigDevice, MigMode, TroubleKind

Answer = TypeVar("Answer")

# NVML reports cores; the SMs of a whole card follow from the cores per SM of its generation.
_CORES_PER_SM = {"6.0": 64, "6.1": 128, "7.0": 64, "7.5": 64, "8.0": 64}
_CORES_PER_SM_SINCE_AMPERE = 128

_TROUBLES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: TroubleKind.NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: TroubleKind.NOT_LOADED,
    pynvml.NVML_ERROR_NO_PERMISSION: TroubleKind.NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: TroubleKind.TOO_OLD,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: TroubleKind.MISMATCH,
}
_UNSUPPORTED = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class NvmlGpus:
    """The GPUs of this machine as reported by their driver; a `GpuSource`."""

    def survey(self) -> GpuSurvey:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return GpuSurvey(trouble=_trouble(error))
        try:
            return _survey()
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()


def energy_meter(uuid: str) -> Callable[[], float | None]:
    """A function that returns the joules a GPU has drawn since the driver was loaded; None if unsupported.

    NVML stays open, as opening it may take longer than the measured work.
    """
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return lambda: None

    def joules() -> float | None:
        with suppress(pynvml.NVMLError):
            return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
        return None

    return joules


class _NvmlCalls:
    """Calls NVML functions and collects their errors, so that one failed query does not hide the others."""

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def call(self, label: str, query: Callable[..., Answer], *arguments: Any) -> Answer | None:
        try:
            return query(*arguments)
        except pynvml.NVMLError as error:
            if error.value not in _UNSUPPORTED:
                self.refusals.append(f"{label}: {error}")
            return None


def _trouble(error: pynvml.NVMLError) -> GpuTrouble:
    return GpuTrouble(_TROUBLES.get(error.value, TroubleKind.OTHER), str(error))


def _survey() -> GpuSurvey:
    calls = _NvmlCalls()
    driver = calls.call("driver", pynvml.nvmlSystemGetDriverVersion)
    cuda = calls.call("driver's CUDA", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    # NVML writes 12.4 as 12040.
    driver_cuda = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
    try:
        num_gpus = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return GpuSurvey(driver, driver_cuda, trouble=_trouble(error))
    return GpuSurvey(driver, driver_cuda, tuple(_gpu(index) for index in range(num_gpus)))


def _gpu(index: int) -> Gpu:
    card = _NvmlCalls()
    handle = card.call("card", pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Gpu(index, refusals=tuple(card.refusals))
    capability = card.call("compute capability", pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    compute_capability = "{}.{}".format(*capability) if capability else None
    memory = card.call("memory", pynvml.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = card.call("power limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    mode = card.call("MIG mode", pynvml.nvmlDeviceGetMigMode, handle)
    mig = MigMode(*(bool(value) for value in mode)) if mode else None
    return Gpu(
        index=index,
        name=card.call("name", pynvml.nvmlDeviceGetName, handle),
        uuid=card.call("uuid", pynvml.nvmlDeviceGetUUID, handle),
        memory_total_bytes=memory.total if memory else None,
        memory_free_bytes=memory.free if memory else None,
        num_sms=_num_sms(card, handle, compute_capability),
        compute_capability=compute_capability,
        mig=mig,
        mig_devices=tuple(_mig_devices(card, handle)) if mig and mig.current else (),
        power_limit_watts=milliwatts / 1000 if milliwatts else None,
        refusals=tuple(card.refusals),
    )


def _num_sms(card: _NvmlCalls, handle: Any, compute_capability: str | None) -> int | None:
    """SMs of a whole card, which NVML reports directly only for MIG slices."""
    num_cores = card.call("cores", pynvml.nvmlDeviceGetNumGpuCores, handle)
    if not num_cores or compute_capability is None:
        return None
    return num_cores // _CORES_PER_SM.get(compute_capability, _CORES_PER_SM_SINCE_AMPERE)


def _mig_devices(card: _NvmlCalls, handle: Any) -> Iterator[MigDevice]:
    for index in range(card.call("slices", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError as error:
            # Removed slices leave gaps in the indices; a missing one is not an error.
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:
                card.refusals.append(f"slice {index}: {error}")
            continue
        yield _mig_device(card, index, part)


def _mig_device(card: _NvmlCalls, index: int, part: Any) -> MigDevice:
    label = f"slice {index}"
    memory = card.call(f"{label} memory", pynvml.nvmlDeviceGetMemoryInfo, part)
    attributes = card.call(f"{label} attributes", pynvml.nvmlDeviceGetAttributes, part)
    return MigDevice(
        index=index,
        name=card.call(f"{label} name", pynvml.nvmlDeviceGetName, part),
        uuid=card.call(f"{label} uuid", pynvml.nvmlDeviceGetUUID, part),
        memory_total_bytes=memory.total if memory else None,
        memory_free_bytes=memory.free if memory else None,
        num_sms=attributes.multiprocessorCount if attributes else None,
        gpu_instance=card.call(f"{label} GPU instance", pynvml.nvmlDeviceGetGpuInstanceId, part),
        compute_instance=card.call(f"{label} compute instance", pynvml.nvmlDeviceGetComputeInstanceId, part),
    )
