"""Asks the NVIDIA driver about its cards, through the NVML bindings of nvidia-ml-py.

Reads only: nothing here changes a card. Each question opens and closes the driver's interface by itself, but
for the energy meter's. Knows nothing of torch, which may see fewer cards (CUDA_VISIBLE_DEVICES) in another
order.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pynvml

from calotype.core.hardware import Gpu, GpuSurvey, GpuTrouble, MigDevice, MigMode, TroubleKind

Answer = TypeVar("Answer")

# NVML counts cores; a whole card's multiprocessors follow from how many cores its generation puts in each.
_CORES_PER_SM = {"6.0": 64, "6.1": 128, "7.0": 64, "7.5": 64, "8.0": 64}
_CORES_PER_SM_SINCE_AMPERE = 128

_TROUBLES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: TroubleKind.NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: TroubleKind.NOT_LOADED,
    pynvml.NVML_ERROR_NO_PERMISSION: TroubleKind.NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: TroubleKind.TOO_OLD,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: TroubleKind.MISMATCH,
}
_NO_SUCH_THING = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class NvmlGpus:
    """The cards of this machine as their driver describes them; a `GpuSource`."""

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
    """Asks how many joules a card has drawn since its driver was loaded; None from cards that do not count.

    The driver's interface stays open: opening it takes longer than what is measured may.
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
    """Asks the driver about one thing and keeps what it refuses, so that one refusal hides nothing else."""

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def call(self, what: str, question: Callable[..., Answer], *about: Any) -> Answer | None:
        try:
            return question(*about)
        except pynvml.NVMLError as error:
            if error.value not in _NO_SUCH_THING:
                self.refusals.append(f"{what}: {error}")
            return None


def _trouble(error: pynvml.NVMLError) -> GpuTrouble:
    return GpuTrouble(_TROUBLES.get(error.value, TroubleKind.OTHER), str(error))


def _survey() -> GpuSurvey:
    questions = _NvmlCalls()
    driver = questions.call("driver", pynvml.nvmlSystemGetDriverVersion)
    cuda = questions.call("driver's CUDA", pynvml.nvmlSystemGetCudaDriverVersion_v2)
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
    """Multiprocessors of a whole card: NVML tells them outright only for slices."""
    num_cores = card.call("cores", pynvml.nvmlDeviceGetNumGpuCores, handle)
    if not num_cores or compute_capability is None:
        return None
    return num_cores // _CORES_PER_SM.get(compute_capability, _CORES_PER_SM_SINCE_AMPERE)


def _mig_devices(card: _NvmlCalls, handle: Any) -> Iterator[MigDevice]:
    for index in range(card.call("slices", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError as error:
            # Indices have gaps where a slice was removed: an absent one is no refusal.
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
