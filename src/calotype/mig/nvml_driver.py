"""The MIG driver by NVML, the GPU driver's own library.

Each public call opens and closes the library. Resets use nvidia-smi, because NVML has none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint
from dataclasses import replace
from typing import Any

import pynvml

from calotype.core.hardware import MigMode
from calotype.mig.driver import ComputeInstance, DriverError, GpuState, Instance, Process, Refusal, in_order
from calotype.mig.layout import ComputePart
from calotype.mig.profiles import GpuModel, Profile, model_of_device
from calotype.mig.smi_driver import SmiDriver
from calotype.mig.smi_parser import live_model

_REFUSALS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Refusal.NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Refusal.NO_DRIVER,
    pynvml.NVML_ERROR_NO_PERMISSION: Refusal.NO_PERMISSION,
    pynvml.NVML_ERROR_IN_USE: Refusal.IN_USE,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: Refusal.NO_ROOM,
    pynvml.NVML_ERROR_GPU_IS_LOST: Refusal.LOST,
    pynvml.NVML_ERROR_NOT_SUPPORTED: Refusal.NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Refusal.NOT_SUPPORTED,
    pynvml.NVML_ERROR_NOT_FOUND: Refusal.NOT_FOUND,
}
_ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
# NVML's value for a process outside of slices.
_NO_INSTANCE = 0xFFFFFFFF
_MAX_PLACES = 16


class NvmlDriver:
    """A `MigDriver` that calls NVML."""

    def read(self) -> tuple[GpuState, ...]:
        with _session("reading the GPUs"):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            states = (_state(index, handle) for index, handle in enumerate(handles))
            return tuple(state for state in states if state)

    def set_mode(self, gpu: int, enabled: bool) -> None:
        with _session(f"setting MIG mode of GPU {gpu}"):
            # The call returns the activation's status; the caller reads the mode instead.
            pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(gpu), int(enabled))

    def reset(self, gpu: int) -> None:
        SmiDriver().reset(gpu)

    def create(self, gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        with _session(f"creating profile {profile_id} at {start} on GPU {gpu}"):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            size = next(each.size for each in _placements(handle, profile_id) if each.start == start)
            place = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
            instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile_id, byref(place))
            if with_compute:
                pynvml.nvmlGpuInstanceCreateComputeInstance(instance, _usual_compute(instance))
            return int(pynvml.nvmlGpuInstanceGetInfo(instance).id)

    def create_compute(self, gpu: int, gi_id: int, part: ComputePart) -> int:
        with _session(f"creating a compute instance in {gi_id} on GPU {gpu}"):
            place = pynvml.c_nvmlComputeInstancePlacement_t(part.start, part.size)
            instance = pynvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(
                _gpu_instance(gpu, gi_id), part.profile_id, byref(place)
            )
            return int(pynvml.nvmlComputeInstanceGetInfo_v2(instance).id)

    def destroy_compute(self, gpu: int, gi_id: int, ci_id: int) -> None:
        with _session(f"destroying compute instance {ci_id} of {gi_id} on GPU {gpu}"):
            part = pynvml.nvmlGpuInstanceGetComputeInstanceById(_gpu_instance(gpu, gi_id), ci_id)
            pynvml.nvmlComputeInstanceDestroy(part)

    def destroy(self, gpu: int, gi_id: int) -> None:
        with _session(f"destroying GPU instance {gi_id} on GPU {gpu}"):
            pynvml.nvmlGpuInstanceDestroy(_gpu_instance(gpu, gi_id))


@contextmanager
def _session(operation: str) -> Iterator[None]:
    try:
        pynvml.nvmlInit()
        try:
            yield
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DriverError(_REFUSALS.get(error.value, Refusal.OTHER), operation, str(error)) from None


def _gpu_instance(gpu: int, gi_id: int) -> Any:
    return pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByIndex(gpu), gi_id)


def _or_none(query: Callable[..., Any], *arguments: Any) -> Any:
    """Call a query; None if the object does not exist."""
    try:
        return query(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _ABSENT:
            return None
        raise


def _state(index: int, handle: Any) -> GpuState | None:
    mode = _or_none(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None:
        return None
    device = f"0x{pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId:08X}"
    model, name = _model(handle, device), str(pynvml.nvmlDeviceGetName(handle))
    processes = list(_processes(handle))
    instances = tuple(_instances(handle, model, processes)) if mode[0] else ()
    known_ids = {each.gi_id for each in instances}
    return GpuState(
        index=index,
        name=name,
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        pci_device_id=device,
        driver_version=str(pynvml.nvmlSystemGetDriverVersion()),
        model=model,
        mode=MigMode(bool(mode[0]), bool(mode[1])),
        instances=tuple(sorted(instances, key=lambda each: each.start)),
        processes=tuple(process for gi, process in processes if gi not in known_ids),
    )


def _model(handle: Any, device: str) -> GpuModel:
    known = model_of_device(device)
    numbers = range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
    infos = [info for k in numbers if (info := _profile_info(handle, k))]
    profiles = [_profile(info, list(_placements(handle, info.id))) for info in infos]
    profiles = [profile for profile in profiles if profile.starts]
    if known and known.name == "A30-24GB":
        # This GPU's driver reports wrong maximum counts.
        counts = {p.profile_id: p.max_instances for p in known.profiles}
        profiles = [replace(p, max_instances=counts.get(p.profile_id, p.max_instances)) for p in profiles]
    if not profiles:
        if known is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return known
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    name = known.name if known else str(pynvml.nvmlDeviceGetName(handle))
    return live_model(name, f"{major}.{minor}", device, profiles)


def _profile_info(handle: Any, number: int) -> Any:
    """None for a profile that the GPU does not have, and for all if the driver is too old to name them."""
    try:
        return _or_none(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
    except pynvml.NVMLError_FunctionNotFound:
        return None


def _profile(info: Any, places: list[Any]) -> Profile:
    name = info.name if isinstance(info.name, str) else info.name.decode()
    return Profile(
        name=name.removeprefix("MIG "),
        profile_id=info.id,
        compute_slices=info.sliceCount,
        memory_slices=places[0].size if places else 0,
        max_instances=info.instanceCount,
        starts=tuple(sorted(place.start for place in places)),
        memory_gib=round(info.memorySizeMB / 1024, 2),
        sms=info.multiprocessorCount or None,
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpeg_engines=info.jpegCount,
        ofa_engines=info.ofaCount,
    )


def _placements(handle: Any, profile_id: int) -> Iterator[Any]:
    places, count = (pynvml.c_nvmlGpuInstancePlacement_t * _MAX_PLACES)(), c_uint(_MAX_PLACES)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, places, byref(count))
    yield from places[: count.value]


def _instances(handle: Any, model: GpuModel, processes: list[tuple[int, Process]]) -> Iterator[Instance]:
    uuids = dict(_uuids(handle))
    for profile in model.profiles:
        found, count = (pynvml.c_nvmlGpuInstance_t * _MAX_PLACES)(), c_uint(_MAX_PLACES)
        pynvml.nvmlDeviceGetGpuInstances(handle, profile.profile_id, found, byref(count))
        for each in found[: count.value]:
            info = pynvml.nvmlGpuInstanceGetInfo(each)
            compute = in_order(
                ComputeInstance(ci, part, uuids.get((info.id, ci))) for ci, part in _compute(each)
            )
            inside = tuple(process for gi, process in processes if gi == info.id)
            yield Instance(info.id, info.profileId, info.placement.start, compute, inside)


def _compute_profiles(instance: Any) -> Iterator[Any]:
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _or_none(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, number, shared)
        if info:
            yield info


def _usual_compute(instance: Any) -> int:
    """The compute profile over the whole slice: the widest, then the one with most multiprocessors."""
    widest = max(_compute_profiles(instance), key=lambda info: (info.sliceCount, info.multiprocessorCount))
    return int(widest.id)


def _compute(instance: Any) -> Iterator[tuple[int, ComputePart]]:
    for profile in _compute_profiles(instance):
        found, count = (pynvml.c_nvmlComputeInstance_t * _MAX_PLACES)(), c_uint(_MAX_PLACES)
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, found, byref(count))
        for each in found[: count.value]:
            info = pynvml.nvmlComputeInstanceGetInfo_v2(each)
            yield info.id, ComputePart(info.placement.start, info.profileId, info.placement.size)


def _uuids(handle: Any) -> Iterator[tuple[tuple[int, int], str]]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = _or_none(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part:
            place = (pynvml.nvmlDeviceGetGpuInstanceId(part), pynvml.nvmlDeviceGetComputeInstanceId(part))
            yield place, str(pynvml.nvmlDeviceGetUUID(part))


def _processes(handle: Any) -> Iterator[tuple[int, Process]]:
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except pynvml.NVMLError_FunctionNotFound:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    for each in found:
        gi = -1 if each.gpuInstanceId in (None, _NO_INSTANCE) else each.gpuInstanceId
        yield gi, Process(each.pid, _process_name(each.pid), each.usedGpuMemory)


def _process_name(pid: int) -> str:
    try:
        return str(pynvml.nvmlSystemGetProcessName(pid))
    except pynvml.NVMLError:
        return "?"
