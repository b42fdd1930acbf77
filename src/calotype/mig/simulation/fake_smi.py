"""A fake `nvidia-smi`: the real one's arguments, output and exit codes, on a simulated machine.

`CALOTYPE_MIG_SIMULATION=machine.json python -m calotype.mig.simulation.fake_smi mig -lgi`. It supports only
nvidia-smi's arguments about slices; all others are invalid.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from calotype.mig.simulation import fake_smi_output, rules
from calotype.mig.simulation.fake_host import FakeHost, shared_host
from calotype.mig.simulation.rules import WORDS, Code, SimulatedRefusalError

VARIABLE = "CALOTYPE_MIG_SIMULATION"
_WITH_VALUE = ("-i", "-gi", "-ci", "-cgi", "-cci", "-mig")
_LISTS: dict[str, Callable[[FakeHost, int], str]] = {
    "-lgip": fake_smi_output.profiles,
    "-lgipp": fake_smi_output.placements,
    "-lgi": fake_smi_output.instances,
    "-lci": fake_smi_output.compute_instances,
}


@dataclass(frozen=True)
class _Arguments:
    """A parsed command line."""

    flags: dict[str, str | None]

    def number(self, flag: str) -> int | None:
        value = self.flags.get(flag)
        return int(value) if value is not None else None


class _FailedError(Exception):
    """Ends the command with its output so far."""

    def __init__(self, code: int, lines: Sequence[str]) -> None:
        self.code, self.lines = code, lines
        super().__init__()


def main(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    with shared_host(Path(os.environ[VARIABLE])) as host:
        try:
            for line in _run(host, list(arguments)):
                print(line)
        except SimulatedRefusalError as error:
            print(_error_text(error))
            return int(error.code) if error.code is not Code.UNKNOWN else 255
        except _FailedError as error:
            print("\n".join(error.lines))
            return error.code if error.code != Code.UNKNOWN else 255
    return 0


def _run(host: FakeHost, words: list[str]) -> list[str]:
    if not host.loaded:
        with rules.driver_call(host):
            pass
    mig = words[:1] == ["mig"]
    parsed = _parse(words[1:] if mig else words)
    index = parsed.number("-i")
    which = list(range(len(host.cards))) if index is None else [index]
    for each in which:
        rules.look(host, each)
    return _run_mig_command(host, parsed, which) if mig else _run_device_command(host, parsed, which)


def _parse(words: list[str]) -> _Arguments:
    flags: dict[str, str | None] = {}
    while words:
        flag = words.pop(0)
        flags[flag] = words.pop(0) if flag in _WITH_VALUE and words else None
    return _Arguments(flags)


def _run_device_command(host: FakeHost, parsed: _Arguments, which: list[int]) -> list[str]:
    flags = set(parsed.flags) - {"-i"}
    if flags == {"-L"}:
        with rules.driver_call(host):
            return fake_smi_output.devices(host, which)
    if flags == {"-q", "-x"}:
        with rules.driver_call(host):
            return [fake_smi_output.query(host, which)]
    if flags == {"-mig"}:
        return [line for index in which for line in _mode(host, index, parsed.flags["-mig"] == "1")]
    if flags in ({"--gpu-reset"}, {"-r"}):
        return [_reset(host, index) for index in which]
    raise _FailedError(
        Code.INVALID_ARGUMENT, [f"Invalid combination of input arguments: {' '.join(parsed.flags)}"]
    )


def _mode(host: FakeHost, index: int, enabled: bool) -> list[str]:
    bus, word = fake_smi_output.bus_id(index), "enable" if enabled else "disable"
    try:
        status = rules.set_mode(host, index, enabled)
    except SimulatedRefusalError as error:
        line = f"Unable to {word} MIG Mode for GPU {bus}: {error}"
        raise _FailedError(error.code, [line, "Terminating early due to previous errors."]) from None
    messages = [f"{'Enabled' if enabled else 'Disabled'} MIG Mode for GPU {bus}", "All done."]
    if status is Code.SUCCESS:
        return messages
    return [
        f"Warning: MIG mode is in pending {word} state for GPU {bus}:{WORDS[status]}",
        f"Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {bus}",
        "All done.",
    ]


def _reset(host: FakeHost, index: int) -> str:
    bus = fake_smi_output.bus_id(index)
    try:
        rules.reset(host, index)
    except SimulatedRefusalError as error:
        words = f"Resetting GPU {bus} is not supported."
        if error.code is not Code.NOT_SUPPORTED:
            words = f"GPU {bus} could not be reset: {error}"
        raise _FailedError(255, [words]) from None
    return f"GPU {bus} was successfully reset."


def _run_mig_command(host: FakeHost, parsed: _Arguments, which: list[int]) -> list[str]:
    for flag, text in _LISTS.items():
        if flag in parsed.flags:
            with rules.driver_call(host):
                return _list(host, flag, text, which)
    on = [index for index in which if host.cards[index].current]
    if not on:
        raise _FailedError(Code.NOT_FOUND, ["No MIG-enabled devices found."])
    if "-cgi" in parsed.flags:
        return [line for index in on for line in _create(host, index, parsed)]
    if "-cci" in parsed.flags:
        return [line for index in on for line in _create_compute(host, index, parsed)]
    if "-dci" in parsed.flags:
        return _destroy_compute(host, on, parsed)
    if "-dgi" in parsed.flags:
        return _destroy(host, on, parsed)
    raise _FailedError(Code.INVALID_ARGUMENT, ["Invalid combination of input arguments."])


def _list(host: FakeHost, flag: str, text: Callable[[FakeHost, int], str], which: list[int]) -> list[str]:
    if flag in ("-lgip", "-lgipp"):
        return [text(host, index) for index in which]
    on = [index for index in which if host.cards[index].current]
    if not on:
        raise _FailedError(Code.NOT_FOUND, ["No MIG-enabled devices found."])
    parts = [cut for index in on for cut in host.cards[index].cuts if flag == "-lgi" or cut.parts]
    if not parts:
        what = "GPU" if flag == "-lgi" else "compute"
        raise _FailedError(Code.NOT_FOUND, [f"No {what} instances found: Not Found"])
    return [text(host, index) for index in on]


def _create(host: FakeHost, index: int, parsed: _Arguments) -> list[str]:
    lines = []
    gpu = host.cards[index].gpu
    for item in (parsed.flags["-cgi"] or "").split(","):
        shape, _, start = item.partition(":")
        profile = next((p for p in gpu.profiles if shape in (str(p.profile_id), p.name)), None)
        number = profile.profile_id if profile else int(shape) if shape.isdigit() else -1
        try:
            cut = rules.create_gpu_instance(host, index, number, int(start) if start else None)
            assert profile
            lines.append(
                f"Successfully created GPU instance ID {cut.gi:>2} on GPU {index:>2} "
                f"using profile MIG {profile.name} (ID {profile.profile_id:>2})"
            )
            if "-C" in parsed.flags:
                lines.append(_create_one_compute(host, index, cut.gi, None))
        except SimulatedRefusalError as error:
            lines.append(f"Unable to create a GPU instance on GPU {index:>2} using profile {number}: {error}")
            raise _FailedError(error.code, [*lines, f"Failed to create GPU instances: {error}"]) from None
    return lines


def _create_compute(host: FakeHost, index: int, parsed: _Arguments) -> list[str]:
    lines: list[str] = []
    gi = parsed.number("-gi")
    wanted = [cut.gi for cut in host.cards[index].cuts] if gi is None else [gi]
    for each in wanted:
        for item in (parsed.flags["-cci"] or "").split(","):
            try:
                lines.append(_create_one_compute(host, index, each, int(item) if item else None))
            except SimulatedRefusalError as error:
                where = f"GPU {index:>2} GPU instance ID {each:>2}"
                lines.append(f"Unable to create a compute instance on {where}: {error}")
                raise _FailedError(
                    error.code, [*lines, f"Failed to create compute instances: {error}"]
                ) from None
    return lines


def _create_one_compute(host: FakeHost, index: int, gi: int, profile_id: int | None) -> str:
    part = rules.create_compute_instance(host, index, gi, profile_id)
    name = fake_smi_output.compute_name(host.cards[index], gi, part)
    return (
        f"Successfully created compute instance ID {part.ci:>2} on GPU {index:>2} "
        f"GPU instance ID {gi:>2} using profile MIG {name} (ID {part.profile_id:>2})"
    )


def _destroy_compute(host: FakeHost, on: list[int], parsed: _Arguments) -> list[str]:
    lines: list[str] = []
    gi, ci = parsed.number("-gi"), parsed.number("-ci")
    for index in on:
        for cut in [each for each in host.cards[index].cuts if gi in (None, each.gi)]:
            for part in [each for each in cut.parts if ci in (None, each.ci)]:
                where = f"compute instance ID {part.ci:>2} from GPU {index:>2} GPU instance ID {cut.gi:>2}"
                try:
                    rules.destroy_compute_instance(host, index, cut.gi, part.ci)
                except SimulatedRefusalError as error:
                    lines += [
                        f"Unable to destroy {where}: {error}",
                        f"Failed to destroy compute instances: {error}",
                    ]
                    raise _FailedError(error.code, lines) from None
                lines.append(f"Successfully destroyed {where}")
    if not lines:
        raise _FailedError(Code.NOT_FOUND, ["No compute instances found: Not Found"])
    return lines


def _destroy(host: FakeHost, on: list[int], parsed: _Arguments) -> list[str]:
    lines: list[str] = []
    gi = parsed.number("-gi")
    for index in on:
        for cut in [each for each in host.cards[index].cuts if gi in (None, each.gi)]:
            where = f"GPU instance ID {cut.gi:>2} from GPU {index:>2}"
            try:
                rules.destroy_gpu_instance(host, index, cut.gi)
            except SimulatedRefusalError as error:
                lines += [f"Unable to destroy {where}: {error}", f"Failed to destroy GPU instances: {error}"]
                raise _FailedError(error.code, lines) from None
            lines.append(f"Successfully destroyed {where}")
    if not lines:
        raise _FailedError(Code.NOT_FOUND, ["No GPU instances found: Not Found"])
    return lines


def _error_text(error: SimulatedRefusalError) -> str:
    if error.code is Code.DRIVER_NOT_LOADED:
        return "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    if error.code is Code.GPU_IS_LOST:
        return "Unable to determine the device handle: GPU is lost.  Reboot the system to recover this GPU"
    return f"Failed: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
