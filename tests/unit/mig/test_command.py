"""`calotype mig` as an operator meets it, on pretended machines: the whole way, and every refusal."""

import json
import os
import re
import shlex
import signal
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from calotype.cli.mig_tables import show_state
from calotype.core.errors import ExitCode
from calotype.mig import persist
from calotype.mig.profiles import table
from calotype.mig.simulation import rules
from calotype.mig.simulation.fake_driver import SimulatedDriver
from calotype.mig.simulation.fake_host import FakeHost, Holder, new_host
from tests.unit.mig.conftest import Machine, NvmlRun, Outcome
from tests.unit.mig.test_files import DEFAULTS

WORK = "3×sd15@4, 1×sd15+me"
SEED = [(0, 14), (2, 14), (4, 14), (6, 20)]


def slices(machine: Machine, gpu: int = 0) -> list[tuple[int, int]]:
    return sorted((cut.start, cut.profile_id) for cut in machine.host.cards[gpu].cuts)


def at_boot(machine: Machine, root: Path) -> Outcome:
    """Run what the unit runs, with the layout file where it was written."""
    text = (root / persist.UNIT_PLACE).read_text()
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    assert words[1:3] == ["-m", "calotype"]
    place = f"/{persist.LAYOUT_PLACE}"
    return machine.call(*(str(root / persist.LAYOUT_PLACE) if word == place else word for word in words[3:]))


def test_the_texts_layout_from_work_to_reboot_and_back(machine: Machine, tmp_path: Path) -> None:
    """Planned, applied, persisted, lost, put back, torn down, put back twice: the same every time."""
    root = tmp_path / "root"
    machine.become(new_host("A100-80GB", passthrough=True))
    best = json.loads(machine.mig("plan", WORK, "--json").out)[0]
    assert [(each["start"], each["profile_id"]) for each in best["slices"]] == SEED

    first = machine.mig("apply", WORK, "--yes")
    assert first.code == ExitCode.GPU_REFUSED
    assert "reboot once" in first.err
    assert machine.mig("persist", WORK, "--root", root, "--yes").code == 0
    machine.change(rules.reboot)
    assert at_boot(machine, root).code == 0
    assert slices(machine) == SEED
    seen = machine.mig("status", "--json").out

    for _ in range(2):
        again = at_boot(machine, root)
        assert (again.code, "the layout is already in place" in again.out) == (0, True)
        assert machine.mig("status", "--json").out == seen
    assert machine.mig("apply", "empty", "--yes").code == 0
    assert slices(machine) == []
    for _ in range(2):
        assert machine.mig("apply", "14,14,14,20", "--yes").code == 0
        assert machine.mig("status", "--json").out == seen, "ids and UUIDs included"
    machine.change(rules.reboot)
    assert at_boot(machine, root).code == 0
    assert machine.mig("status", "--json").out == seen


def test_hopper_needs_no_reboot_and_finds_its_mode_again(machine: Machine, tmp_path: Path) -> None:
    root = tmp_path / "root"
    machine.become(new_host("H100-80GB-SXM5"))
    assert machine.mig("apply", "3g.40gb×2", "--yes").code == 0
    assert machine.mig("persist", "--root", root, "--yes").code == 0
    machine.change(rules.reboot)
    assert not machine.host.cards[0].current
    assert at_boot(machine, root).code == 0
    assert slices(machine) == [(0, 9), (4, 9)]


def test_the_unit_gives_up_instead_of_rebooting(machine: Machine, tmp_path: Path) -> None:
    root = tmp_path / "root"
    machine.become(new_host("A100-80GB", passthrough=True))
    assert machine.mig("persist", WORK, "--root", root, "--yes").code == 0
    for _ in range(3):
        done = at_boot(machine, root)
        assert done.code == ExitCode.GPU_REFUSED
        assert "pending" in done.err
    assert sum("mode on" in line for line in machine.host.log) == 1


def test_nothing_happens_without_yes(machine: Machine) -> None:
    machine.become(new_host("A100-80GB"))
    before = machine.host
    shown = machine.mig("apply", "2g.20gb×3,1g.10gb+me")
    commands = [line.strip() for line in shown.out.splitlines() if "nvidia-smi" in line]
    assert commands == [
        "nvidia-smi -i 0 -mig 1",
        "nvidia-smi mig -i 0 -cgi 14:0 -C",
        "nvidia-smi mig -i 0 -cgi 14:2 -C",
        "nvidia-smi mig -i 0 -cgi 14:4 -C",
        "nvidia-smi mig -i 0 -cgi 20:6 -C",
    ]
    assert "nothing was changed" in shown.out
    assert (machine.host.cards, machine.host.log) == (before.cards, [])


def test_the_shown_commands_do_the_same_by_hand(machine: Machine, nvidia_smi: Path) -> None:
    import subprocess

    for former, target in (("1g.10gb×3", "3g.40gb,2g.20gb"), ("3g.40gb", "off")):
        machine.become(new_host("A100-80GB"))
        assert machine.mig("apply", former, "--yes").code == 0
        shown = json.loads(machine.mig("apply", target, "--json").out)
        for command in shown[0]["commands"]:
            subprocess.run(command.split(), check=True, capture_output=True, timeout=300)
        assert "the layout is already in place" in machine.mig("apply", target).out


def test_a_slice_more_leaves_the_others_alone(machine: Machine) -> None:
    machine.become(new_host("A100-80GB"))
    machine.mig("apply", "2g.20gb×2", "--yes")
    machine.change(lambda host: host.cards[0].holders.append(Holder(5, "serve", host.cards[0].cuts[0].gi)))
    machine.change(lambda host: host.log.clear())
    done = machine.mig("apply", "3g.40gb", "--add", "--yes")
    assert done.code == 0, done.err
    assert len(slices(machine)) == 3
    assert not [line for line in machine.host.log if "destroyed" in line]
    assert "slices: 2 kept untouched, 1 created\n" in done.out


def test_status_shows_slices_places_and_who_is_inside(machine: Machine) -> None:
    machine.become(new_host("A100-80GB"))
    machine.mig("apply", "14,14,14,20", "--yes")
    machine.change(lambda host: host.cards[0].holders.append(Holder(4711, "python3", 13, 2**30)))
    seen = machine.mig("status").out
    assert "memory   │A  A │B  B │C  C │D │· │" in seen
    assert "compute  │A  A │B  B │C  C │D │\n" in seen
    assert "4711 (python3)" in seen
    facts = json.loads(machine.mig("status", "--json").out)[0]
    assert [each["gpu_instance"] for each in facts["slices"]] == [3, 4, 5, 13]
    for each in facts["slices"]:
        (part,) = each["compute_instances"]
        assert f"CUDA_VISIBLE_DEVICES={part['uuid']}" in seen


def test_a_shut_in_compute_slice_is_drawn(machine: Machine) -> None:
    shown = machine.call("mig", "plan", "3g.40gb×2", "--on", "A100-80GB").out
    assert "memory   │A  A  A  A │B  B  B  B │" in shown
    assert "compute  │A  A  A │× │B  B  B │" in shown


@pytest.mark.parametrize("gpu", list(table()))
def test_plans_need_no_gpu_and_say_their_figures(machine: Machine, gpu: str) -> None:
    done = machine.call("mig", "plan", "2×sd15@4", "--on", gpu)
    assert done.code == 0, done.err
    assert "memory of sd15@4: the engine's memory estimate" in done.out
    assert "speed: predicted" in done.out


def test_layouts_stand_side_by_side_in_a_narrow_terminal(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = machine.call("mig", "plan", WORK, "--on", "A100-80GB").out
    others = shown.partition("alternatives:")[2]
    assert [line.count("memory ") for line in others.splitlines() if "memory " in line] == [2]
    assert "D 1g.10gb+me" in others
    assert max(map(len, others.splitlines())) <= 80


def test_colours_only_repeat_what_letters_say(machine: Machine) -> None:
    machine.become(new_host("A100-80GB"))
    machine.mig("apply", "14,14,14,20", "--yes")
    [state] = SimulatedDriver(machine.path).read()
    console = Console(force_terminal=True, color_system="standard", width=80, record=True, file=StringIO())
    show_state(console, state)
    plain, coloured = console.export_text(clear=False), console.export_text(styles=True)
    assert "memory   │A  A │B  B │C  C │D │· │" in plain
    for letters in ("A  A ", "B  B ", "C  C ", "D "):
        assert len(re.findall(rf"│\x1b\[[0-9;]+m{letters}\x1b\[0m│", coloured)) == 2


def test_a_change_says_how_many_slices_stay_go_and_come(machine: Machine) -> None:
    machine.become(new_host("A100-80GB"))
    assert "slices: 4 created\n" in machine.mig("apply", "14,14,14,20", "--yes").out
    assert "slices: 1 kept untouched, 3 removed, 1 created\n" in machine.mig("apply", "3g.40gb,2g.20gb").out
    assert "slices: 4 removed\n" in machine.mig("apply", "empty", "--yes").out
    assert "no slices; find a layout with `calotype mig plan`" in machine.mig("status").out
    assert "no slice changes\n" in machine.mig("apply", "off", "--yes").out


@pytest.mark.parametrize("what", [("off",), ("empty",), ("--from", "layout.json")])
def test_adding_is_adding(machine: Machine, what: tuple[str, ...]) -> None:
    machine.become(new_host("A100-80GB"))
    machine.mig("apply", "2g.20gb", "--yes")
    refused = machine.mig("apply", *what, "--add", "--yes")
    assert refused.code == ExitCode.BAD_REQUEST
    assert "omit --add" in refused.err
    assert len(slices(machine)) == 1


def test_predictions_are_called_predictions(machine: Machine) -> None:
    done = machine.call("mig", "predict", "sd15@4", "--on", "A100-80GB")
    assert "A prediction, not a measurement" in done.out
    assert "29% of the GPU" in done.out
    assert "from each slice's share of SMs; no record of sd15 on A100-80GB" in done.out
    measured = machine.call("mig", "predict", "sdxl@8", "--on", "H200-141GB").out
    assert "benchmarks/2026-11-16-engine (fast)" in measured


def test_export_assert_restore(machine: Machine, tmp_path: Path) -> None:
    machine.become(new_host("A100-80GB", "A30-24GB"))
    machine.mig("apply", "2g.20gb,3g.40gb", "--yes")
    file = tmp_path / "layout.json"
    assert machine.mig("export", "--out", file).code == 0
    assert machine.mig("assert", file).code == 0
    machine.mig("apply", "7g.80gb", "--yes")
    differs = machine.mig("assert", file)
    assert differs.code == ExitCode.GPU_REFUSED
    assert "nvidia-smi mig -i 0 -dgi -gi 0" in differs.err
    assert machine.mig("restore", file, "--yes").code == 0
    assert machine.mig("assert", file, "--json").code == 0
    parted = tmp_path / "parted.yaml"
    machine.mig("export", "--format", "mig-parted", "--out", parted)
    assert machine.mig("assert", parted).code == 0


def test_mig_parted_files_are_applied_by_label(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(DEFAULTS)
    machine.become(new_host("A100-40GB", "A100-80GB"))
    assert "several configurations" in machine.mig("apply", "--from", tmp_path / "config.yaml").err
    done = machine.mig("apply", "--from", tmp_path / "config.yaml", "--label", "all-balanced", "--yes")
    assert done.code == 0, done.err
    assert sorted(number for _, number in slices(machine)) == [9, 14, 19, 19]
    assert machine.mig("assert", tmp_path / "config.yaml", "--label", "all-balanced").code == 0
    assert machine.call("mig", "check", tmp_path / "config.yaml").code == 0


def _as_it_is(host: FakeHost) -> None:
    """Nothing is wrong with the machine."""


def _without(name: str) -> Callable[[FakeHost], None]:
    return lambda host: setattr(host, name, False)


BAD: dict[str, tuple[Callable[[FakeHost], Any], tuple[str, ...], int, str]] = {
    "unknown profile": (_as_it_is, ("apply", "2g.21gb", "--yes"), 2, "did you mean '2g.20gb'"),
    "profile of another GPU": (_as_it_is, ("apply", "1g.5gb", "--yes"), 2, "A100-40GB has it"),
    "count 0": (_as_it_is, ("apply", "0×2g.20gb", "--yes"), 2, "0 is out of range"),
    "count 99": (_as_it_is, ("apply", "99×2g.20gb", "--yes"), 2, "99 is out of range"),
    "too much": (_as_it_is, ("apply", "9,9,9", "--yes"), 5, "2× 3g.40gb would"),
    "no permission": (_without("is_root"), ("apply", "9", "--yes"), 7, "run it as root"),
    "no driver": (_without("loaded"), ("apply", "9", "--yes"), 4, "install and load the NVIDIA driver"),
    "GPU lost": (
        lambda host: setattr(host.cards[0], "lost", True),
        ("apply", "9", "--yes"),
        7,
        "GPU is lost",
    ),
    "no such GPU": (_as_it_is, ("apply", "9", "--gpu", "3", "--yes"), 4, "no MIG-capable GPU 3"),
    "no such file": (_as_it_is, ("restore", "nowhere.json", "--yes"), 4, "cannot be read"),
    "nothing said": (_as_it_is, ("apply",), 2, "give either WANTS or --from"),
    "no such objective": (_as_it_is, ("plan", "9", "--objective", "best"), 2, "not an objective"),
}


@pytest.mark.parametrize(("spoil", "arguments", "code", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_a_clear_error_and_changes_nothing(
    machine: Machine, spoil: Callable[[FakeHost], Any], arguments: tuple[str, ...], code: int, words: str
) -> None:
    machine.become(new_host("A100-80GB"))
    assert machine.mig("apply", "14,14,14,20", "--yes").code == 0
    machine.change(spoil)
    before = machine.host.cards
    done = machine.mig(*arguments)
    assert (done.code, "Traceback" in done.err) == (code, False)
    assert words in done.err
    assert machine.host.cards == before


def test_a_yaml_with_an_unknown_field_changes_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.become(new_host("A100-80GB"))
    file = tmp_path / "c.yaml"
    file.write_text("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: true, place: 4}\n")
    done = machine.mig("apply", "--from", file, "--yes")
    assert done.code == 2
    assert "place: is not a known setting" in done.err
    assert not machine.host.cards[0].current


def test_unknown_drivers_and_machines_are_refused(calotype: Callable[..., Outcome], tmp_path: Path) -> None:
    assert "known: auto, nvml" in calotype("mig", "status", "--driver", "cuda").err
    missing = calotype("mig", "status", "--driver", f"simulated:{tmp_path}/none.json")
    assert "calotype mig simulate" in missing.err
    assert not list(tmp_path.glob(".*lock"))
    assert "no GPU 'A200'" in calotype("mig", "simulate", tmp_path / "m.json", "--gpu", "A200").err


def test_a_service_stopped_half_way_puts_everything_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.become(new_host("A100-80GB"))
    machine.mig("apply", "14,14,14,20", "--yes")
    seen = machine.mig("status", "--json").out
    destroy = SimulatedDriver.destroy
    stopped: list[int] = []

    def destroy_and_be_stopped(self: SimulatedDriver, gpu: int, gi_id: int) -> None:
        destroy(self, gpu, gi_id)
        if not stopped:
            stopped.append(gi_id)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(SimulatedDriver, "destroy", destroy_and_be_stopped)
    assert machine.mig("apply", "7g.80gb", "--yes").code == ExitCode.CANCELLED
    assert stopped
    assert machine.mig("status", "--json").out == seen


def test_nvidia_smi_does_the_whole_way(machine: Machine, nvidia_smi: Path) -> None:
    machine.become(new_host("A100-80GB", mirrored=True))
    done = machine.call("mig", "apply", "14,14,14,20", "--yes", "--driver", "nvidia-smi")
    assert done.code == 0, done.err
    assert slices(machine) == SEED
    assert [cut.gi for cut in machine.host.cards[0].cuts] == [5, 6, 3, 9], "a mirrored unit's ids"
    machine.change(lambda host: setattr(host, "fail_at", [host.calls + 16]))
    failed = machine.call("mig", "apply", "off", "--yes", "--driver", "nvidia-smi")
    assert (failed.code, "the former layout is restored" in failed.err) == (7, True)
    assert slices(machine) == SEED


def test_nvml_does_the_whole_way(machine: Machine, with_nvml: NvmlRun) -> None:
    machine.become(new_host("A100-80GB", "H100-80GB-SXM5"))
    done = with_nvml("apply", "14,14,14,20", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert slices(machine) == SEED
    through_nvml = json.loads(with_nvml("status", "--json").stdout)
    ours = json.loads(machine.mig("status", "--json").out)
    for one, other in zip(through_nvml, ours, strict=True):
        one.pop("name"), other.pop("name")
        assert one == other
    # The shape with double memory has a compute profile of its own on Hopper.
    assert with_nvml("apply", "1g.20gb,3g.40gb", "--gpu", 1, "--yes").returncode == 0
    assert [part.profile_id for cut in machine.host.cards[1].cuts for part in cut.parts] == [7, 2]


def test_nvml_refusals_and_failures_leave_things_as_they_were(machine: Machine, with_nvml: NvmlRun) -> None:
    machine.become(new_host("A100-80GB"))
    machine.mig("apply", "14,14,14,20", "--yes")
    before = machine.host.cards
    machine.change(lambda host: host.cards[0].holders.append(Holder(4711, "python3", 5)))
    busy = with_nvml("apply", "empty", "--yes")
    assert (busy.returncode, "4711 (python3)" in busy.stderr) == (7, True)
    machine.change(lambda host: host.cards[0].holders.clear())
    machine.change(lambda host: setattr(host, "fail_at", [host.calls + 6]))
    failed = with_nvml("apply", "empty", "--yes")
    assert (failed.returncode, "the former layout is restored" in failed.stderr) == (7, True)
    machine.change(lambda host: setattr(host, "is_root", False))
    refused = with_nvml("apply", "empty", "--yes")
    assert (refused.returncode, "run it as root" in refused.stderr) == (7, True)
    after = machine.host.cards
    assert sorted(after[0].cuts, key=lambda cut: cut.start) == sorted(
        before[0].cuts, key=lambda cut: cut.start
    )


def test_an_old_driver_is_helped_out_by_the_table(machine: Machine, with_nvml: NvmlRun) -> None:
    machine.become(new_host("A100-80GB"))
    machine.mig("apply", "14,14,14,20", "--yes")
    machine.change(lambda host: host.cards[0].holders.append(Holder(4711, "python3", 5)))
    done = with_nvml("status", "--json", library="old")
    assert done.returncode == 0, done.stderr
    (facts,) = json.loads(done.stdout)
    assert [each["profile"] for each in facts["slices"]] == ["2g.20gb"] * 3 + ["1g.10gb+me"]
    assert [len(each["processes"]) for each in facts["slices"]] == [0, 0, 1, 0]


def test_importing_the_room_and_its_commands_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import calotype.cli.mig, calotype.mig.open_driver, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
