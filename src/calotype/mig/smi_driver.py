"""The MIG driver by the `nvidia-smi` command: for hosts without NVML's library, and for resets.

Every call runs one command and checks its output, not only its exit code.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence

from calotype.mig import smi_parser
from calotype.mig.diff import Create, CreateCompute, Destroy, DestroyCompute, Reset, SetMode
from calotype.mig.driver import ComputeInstance, DriverError, GpuState, Instance, Process, Refusal, in_order
from calotype.mig.layout import ComputePart
from calotype.mig.performance_model import model_of_card
from calotype.mig.profiles import GpuModel, model_of_device
from calotype.mig.smi_parser import QueriedGpu

PROGRAM = "nvidia-smi"
# A reset of a large card takes half a minute; nothing else takes seconds.
_TIMEOUT_S = 180.0
_REFUSALS = (
    ("insufficient permissions", Refusal.NO_PERMISSION),
    ("in use by another client", Refusal.IN_USE),
    ("insufficient resources", Refusal.NO_ROOM),
    ("gpu is lost", Refusal.LOST),
    ("not supported", Refusal.NOT_SUPPORTED),
    ("couldn't communicate with the nvidia driver", Refusal.NO_DRIVER),
    ("not found", Refusal.NOT_FOUND),
)
_EMPTY_LISTS = ("No MIG-enabled devices found", "No GPU instances found", "No compute instances found")


class SmiDriver:
    """A `MigDriver` that runs nvidia-smi."""

    def __init__(self) -> None:
        self._shapes: dict[str, str] = {}

    def read(self) -> tuple[GpuState, ...]:
        queried = smi_parser.parse_query(self._run(["-q", "-x"]))
        if not queried:
            return ()
        # The available profiles do not change.
        self._shapes = self._shapes or {flag: self._listing(flag) for flag in ("-lgip", "-lgipp")}
        cut = any(gpu.mode.current for gpu in queried)
        lists = {flag: self._run(["mig", flag]) if cut else "" for flag in ("-lgi", "-lci")}
        uuids = smi_parser.parse_uuids(self._run(["-L"])) if cut else {}
        return tuple(_state(gpu, self._shapes | lists, uuids) for gpu in queried)

    def _listing(self, flag: str) -> str:
        """Some drivers fail to list profiles while MIG mode is off: the table is used then."""
        try:
            return self._run(["mig", flag])
        except DriverError:
            return ""

    def set_mode(self, gpu: int, enabled: bool) -> None:
        self._command(SetMode(enabled).command(gpu))

    def reset(self, gpu: int) -> None:
        self._command(Reset().command(gpu))

    def create(self, gpu: int, profile_id: int, start: int, *, with_compute: bool) -> int:
        command = Create(profile_id, start, with_compute).command(gpu)
        return self._create_and_parse(command, "GPU")

    def create_compute(self, gpu: int, gi_id: int, part: ComputePart) -> int:
        return self._create_and_parse(CreateCompute(0, part, gi_id).command(gpu), "compute")

    def destroy_compute(self, gpu: int, gi_id: int, ci_id: int) -> None:
        self._command(DestroyCompute(gi_id, ci_id).command(gpu))

    def destroy(self, gpu: int, gi_id: int) -> None:
        self._command(Destroy(gi_id).command(gpu))

    def _create_and_parse(self, command: str, what: str) -> int:
        text = self._command(command)
        instance_id = smi_parser.parse_made(text, what)
        if instance_id is None:
            raise DriverError(
                Refusal.OTHER, command, f"it reported success but created nothing: {text.strip()!r}"
            )
        return instance_id

    def _command(self, command: str) -> str:
        """Run a command line of a step in `diff`."""
        return self._run(command.split()[1:])

    def _run(self, arguments: Sequence[str]) -> str:
        command_line = " ".join([PROGRAM, *arguments])
        program = shutil.which(PROGRAM)
        if program is None:
            raise DriverError(Refusal.NO_DRIVER, command_line, f"{PROGRAM} is not installed")
        try:
            completed = subprocess.run(  # noqa: S603 - fixed arguments and numbers
                [program, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                env=os.environ | {"LC_ALL": "C"},
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DriverError(Refusal.OTHER, command_line, str(error)) from None
        text = f"{completed.stdout}\n{completed.stderr}"
        if completed.returncode == 0 or any(words in text for words in _EMPTY_LISTS):
            return completed.stdout
        raise DriverError(
            _refusal(text), command_line, " ".join(text.split()) or f"exit code {completed.returncode}"
        )


def _refusal(text: str) -> Refusal:
    lower = text.lower()
    return next((refusal for words, refusal in _REFUSALS if words in lower), Refusal.OTHER)


def _state(gpu: QueriedGpu, lists: dict[str, str], uuids: dict[tuple[int, int], str]) -> GpuState:
    names = {place: uuids.get((gpu.index, number)) for number, place in gpu.device_places.items()}
    compute: dict[int, list[ComputeInstance]] = {}
    for gi, ci, part in smi_parser.parse_compute_instances(lists["-lci"], gpu.index):
        compute.setdefault(gi, []).append(ComputeInstance(ci, part, names.get((gi, ci))))
    instances = [
        Instance(gi, profile, start, in_order(compute.get(gi, ())), _inside(gpu, gi))
        for gi, profile, start in smi_parser.parse_instances(lists["-lgi"], gpu.index)
    ]
    known_ids = {each.gi_id for each in instances}
    return GpuState(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        pci_device_id=gpu.pci_device_id,
        driver_version=gpu.driver_version,
        model=_model(gpu, lists),
        mode=gpu.mode,
        instances=tuple(sorted(instances, key=lambda each: each.start)),
        processes=tuple(process for gi, process in gpu.processes if gi not in known_ids),
    )


def _inside(gpu: QueriedGpu, gi: int) -> tuple[Process, ...]:
    return tuple(process for inside, process in gpu.processes if inside == gi)


def _model(gpu: QueriedGpu, lists: dict[str, str]) -> GpuModel:
    """The model as the driver lists it; the compute capability, which it does not list, is from the table."""
    known = model_of_device(gpu.pci_device_id) or model_of_card(gpu.name, None)
    profiles = smi_parser.with_places(
        lists["-lgipp"], gpu.index, smi_parser.parse_profiles(lists["-lgip"], gpu.index)
    )
    if not profiles:
        if known is None:
            words = f"{gpu.name} ({gpu.pci_device_id}) lists no profiles and is not in the table"
            raise DriverError(Refusal.NOT_SUPPORTED, "reading the GPUs", words)
        return known
    name = known.name if known else gpu.name
    return smi_parser.live_model(name, known.compute_capability if known else "", gpu.pci_device_id, profiles)
