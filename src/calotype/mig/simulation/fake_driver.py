"""The simulated machine as a `MigDriver`, like NVML and nvidia-smi."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from calotype.core.hardware import MigMode
from calotype.mig.driver import ComputeInstance, DriverError, GpuState, Instance, Process, Refusal, in_order
from calotype.mig.layout import ComputePart
from calotype.mig.simulation import rules
from calotype.mig.simulation.fake_host import FakeGpu, FakeHost, shared_host
from calotype.mig.simulation.rules import Code, SimulatedRefusalError

Result = TypeVar("Result")

REFUSALS = {
    Code.NO_PERMISSION: Refusal.NO_PERMISSION,
    Code.IN_USE: Refusal.IN_USE,
    Code.INSUFFICIENT_RESOURCES: Refusal.NO_ROOM,
    Code.GPU_IS_LOST: Refusal.LOST,
    Code.NOT_SUPPORTED: Refusal.NOT_SUPPORTED,
    Code.NOT_FOUND: Refusal.NOT_FOUND,
    Code.DRIVER_NOT_LOADED: Refusal.NO_DRIVER,
}


class SimulatedDriver:
    """A `MigDriver` of a machine in memory, or in a file that other processes may share."""

    def __init__(self, machine: FakeHost | Path) -> None:
        self._machine = machine

    def read(self) -> tuple[GpuState, ...]:
        def read_states(host: FakeHost) -> tuple[GpuState, ...]:
            with rules.driver_call(host):
                return tuple(_state(host, index, rules.look(host, index)) for index in range(len(host.cards)))

        return self._call("reading the GPUs", read_states)

    def set_mode(self, gpu: int, enabled: bool) -> None:
        self._call(f"setting MIG mode of GPU {gpu}", lambda host: rules.set_mode(host, gpu, enabled))

    def reset(self, gpu: int) -> None:
        self._call(f"resetting GPU {gpu}", lambda host: rules.reset(host, gpu))

    def create(self, gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        operation = f"creating profile {profile_id} at {start} on GPU {gpu}"
        instance = self._call(operation, lambda host: rules.create_gpu_instance(host, gpu, profile_id, start))
        if with_compute:
            self._call(operation, lambda host: rules.create_compute_instance(host, gpu, instance.gi))
        return instance.gi

    def create_compute(self, gpu: int, gi_id: int, part: ComputePart) -> int:
        def make(host: FakeHost) -> int:
            return rules.create_compute_instance(host, gpu, gi_id, part.profile_id, part.start).ci

        return self._call(f"creating a compute instance in {gi_id} on GPU {gpu}", make)

    def destroy_compute(self, gpu: int, gi_id: int, ci_id: int) -> None:
        operation = f"destroying compute instance {ci_id} of {gi_id} on GPU {gpu}"
        self._call(operation, lambda host: rules.destroy_compute_instance(host, gpu, gi_id, ci_id))

    def destroy(self, gpu: int, gi_id: int) -> None:
        operation = f"destroying GPU instance {gi_id} on GPU {gpu}"
        self._call(operation, lambda host: rules.destroy_gpu_instance(host, gpu, gi_id))

    def _call(self, operation: str, call: Callable[[FakeHost], Result]) -> Result:
        try:
            with self._host() as host:
                return call(host)
        except SimulatedRefusalError as error:
            raise DriverError(REFUSALS.get(error.code, Refusal.OTHER), operation, str(error)) from None

    @contextmanager
    def _host(self) -> Iterator[FakeHost]:
        if isinstance(self._machine, FakeHost):
            yield self._machine
            return
        with shared_host(self._machine) as host:
            yield host


def _state(host: FakeHost, index: int, card: FakeGpu) -> GpuState:
    instances = []
    for cut in sorted(card.cuts, key=lambda cut: cut.start):
        compute = in_order(
            ComputeInstance(p.ci, ComputePart(p.start, p.profile_id, p.size), card.slice_uuid(cut.gi, p.ci))
            for p in cut.parts
        )
        inside = _processes(card, cut.gi)
        instances.append(Instance(cut.gi, cut.profile_id, cut.start, compute, inside))
    return GpuState(
        index=index,
        name=f"Simulated {card.model}",
        uuid=card.uuid,
        pci_device_id=next(iter(card.gpu.pci_device_ids), ""),
        driver_version=host.driver_version,
        model=card.gpu,
        mode=MigMode(card.current, card.pending),
        instances=tuple(instances),
        processes=_processes(card, None),
    )


def _processes(card: FakeGpu, gi: int | None) -> tuple[Process, ...]:
    return tuple(Process(each.pid, each.name, each.used_bytes) for each in card.holders if each.gi == gi)
