"""What each fact means for the user."""

import re
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from calotype.cli.doctor.diagnose import diagnose
from calotype.cli.doctor.package_checks import OLDEST_TORCH
from calotype.cli.doctor.types import GB, GIB, Facts, Finding, Level
from calotype.core.hardware import (
    Cpu,
    Disk,
    Gpu,
    GpuSurvey,
    GpuTrouble,
    Memory,
    MigDevice,
    MigMode,
    TroubleKind,
)
from calotype.engine.torch_info import CompileReadiness
from tests.unit.cli.doctor.machines import (
    H200,
    machine,
    torch_device,
    torch_on_cpu,
    torch_on_gpu,
    with_packages,
)

ONE_H200 = GpuSurvey("580.1", "13.0", (H200,))


def the(facts: Facts, words: str) -> Finding:
    """The one finding that says `words`."""
    found = [finding for finding in diagnose(facts) if words in finding.found]
    assert len(found) == 1, [finding.found for finding in diagnose(facts)]
    return found[0]


def levels(facts: Facts) -> set[Level]:
    return {finding.level for finding in diagnose(facts)}


def test_a_machine_without_a_card_works_on_the_cpu() -> None:
    finding = the(machine(), "No GPU")
    assert finding.level is Level.NOTE
    assert "on the CPU" in finding.meaning
    assert "SDXL minutes" in finding.meaning
    assert levels(machine()) == {Level.NOTE, Level.OK}


def test_a_machine_with_a_card_has_nothing_to_complain_of() -> None:
    facts = machine(gpus=ONE_H200, torch=torch_on_gpu())
    assert levels(facts) == {Level.OK}
    assert "on the GPU" in the(facts, "Torch can use cuda:0 (NVIDIA H200)").meaning
    assert "SDXL" in the(facts, "139.0 GiB of 140.0 GiB free").meaning


@pytest.mark.parametrize("kind", [kind for kind in TroubleKind if kind is not TroubleKind.NO_DRIVER])
def test_every_trouble_with_a_driver_has_a_remedy(kind: TroubleKind) -> None:
    facts = machine(gpus=GpuSurvey(trouble=GpuTrouble(kind, "the driver's words")))
    finding = the(facts, "the driver's words")
    assert finding.level is Level.WARNING
    assert finding.fix
    assert "on the CPU" in finding.meaning


def test_a_container_without_nvml_still_has_its_card() -> None:
    facts = machine(torch=torch_on_gpu())
    assert the(facts, "the driver cannot be queried").level is Level.NOTE
    assert not [finding for finding in diagnose(facts) if "No GPU" in finding.found]


def test_a_driver_without_cards() -> None:
    assert the(machine(gpus=GpuSurvey("580.1", "13.0")), "shows no card").level is Level.NOTE


def test_torch_without_cuda_beside_a_card() -> None:
    finding = the(machine(gpus=ONE_H200), "built without CUDA")
    assert finding.level is Level.WARNING
    assert "CUDA build" in str(finding.fix)


def test_torch_that_cannot_use_the_card_says_why() -> None:
    torch = torch_on_cpu(cuda="13.0", cuda_trouble="the driver is too old")
    assert "driver" in str(the(machine(gpus=ONE_H200, torch=torch), "the driver is too old").fix)


def test_hidden_cards() -> None:
    hidden = machine(gpus=ONE_H200, torch=torch_on_cpu(cuda="13.0"), visible_devices="")
    assert the(hidden, "hides every GPU").level is Level.WARNING
    two = replace(ONE_H200, gpus=(H200, replace(H200, index=1)))
    assert (
        the(machine(gpus=two, torch=torch_on_gpu(), visible_devices="1"), "1 of 2 GPUs").level is Level.NOTE
    )


def test_a_card_too_old_for_fp8() -> None:
    card = torch_device("cuda:0", "flash", "math", capability="8.0")
    assert "fp8" in the(machine(torch=torch_on_gpu(card)), "compute capability 8.0").meaning


def test_attention() -> None:
    math_only = machine(torch=torch_on_gpu(torch_device("cuda:0", "math")))
    assert the(math_only, "Only plain (math) attention").level is Level.WARNING
    none = machine(torch=torch_on_gpu(torch_device("cuda:0", reason="no kernel image")))
    assert the(none, "No attention kernel runs on cuda:0: no kernel image").level is Level.WARNING


@pytest.mark.parametrize(("current", "words"), [(False, "off now, on after"), (True, "on now, off after")])
def test_pending_mig_mode(current: bool, words: str) -> None:
    gpu = replace(H200, mig=MigMode(current, not current))
    finding = the(machine(gpus=replace(ONE_H200, gpus=(gpu,))), "MIG mode is pending")
    assert words in finding.found
    assert "reset" in str(finding.fix)


def test_mig_with_and_without_slices() -> None:
    part = MigDevice(0, "MIG 1g.18gb", "MIG-1", 18 * GIB, 17 * GIB, 16, 9, 0)
    cut = replace(H200, mig=MigMode(True, True), mig_devices=(part,))
    assert the(machine(gpus=replace(ONE_H200, gpus=(cut,))), "partitioned into 1 slice").level is Level.OK
    empty = replace(cut, mig_devices=())
    assert the(machine(gpus=replace(ONE_H200, gpus=(empty,))), "has no slices").level is Level.WARNING


@pytest.mark.parametrize(
    ("free", "level", "meaning"),
    [(20, Level.OK, "SDXL in fp16 fits"), (6, Level.NOTE, "SD 1.5"), (1, Level.WARNING, "embedded model")],
)
def test_what_fits_on_a_card(free: int, level: Level, meaning: str) -> None:
    gpu = replace(H200, memory_free_bytes=free * GIB)
    finding = the(machine(gpus=replace(ONE_H200, gpus=(gpu,))), f"{free}.0 GiB of 140.0 GiB free")
    assert finding.level is level
    assert meaning in finding.meaning
    assert "Another program" in str(finding.fix)


def test_a_refusal_is_told() -> None:
    gpu = replace(H200, refusals=("memory: Insufficient Permissions",))
    assert (
        the(machine(gpus=replace(ONE_H200, gpus=(gpu,))), "Insufficient Permissions").level is Level.WARNING
    )


def test_a_lost_card() -> None:
    facts = machine(gpus=replace(ONE_H200, gpus=(H200, Gpu(1, refusals=("card: GPU is lost",)))))
    finding = the(facts, "GPU 1 does not answer (card: GPU is lost)")
    assert (finding.level, finding.meaning) == (Level.WARNING, "No work can run on it.")


def test_missing_packages() -> None:
    assert the(with_packages(machine(), diffusers=None), "Not installed: diffusers").level is Level.PROBLEM
    assert the(with_packages(machine(), peft=None), "peft").level is Level.WARNING
    assert the(with_packages(machine(), torchao=None), "torchao").level is Level.NOTE


def test_missing_torch_is_a_problem_and_comes_first() -> None:
    facts = machine(torch=None, torch_trouble="No module named 'torch'")
    assert diagnose(facts)[0] == the(facts, "No module named 'torch'")
    assert diagnose(facts)[0].level is Level.PROBLEM


def test_old_torch() -> None:
    assert the(machine(torch=torch_on_cpu(version="2.9.1+cu126")), "older than 2.10").level is Level.WARNING
    assert Level.WARNING not in levels(machine(torch=torch_on_cpu(version="2.10.0")))


def test_the_oldest_torch_is_the_one_the_package_asks_for() -> None:
    asked = [text for text in metadata.requires("calotype") or [] if re.match(r"torch\b", text)]
    assert asked == [f"torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}"]


def test_compile_that_falls_back() -> None:
    torch = torch_on_cpu(compile=(CompileReadiness("cpu", False, "no C++ compiler"),))
    finding = the(machine(torch=torch), "no C++ compiler")
    assert finding.level is Level.WARNING
    assert "falls back" in finding.meaning
    assert "g++" in str(finding.fix)


def test_compile_for_the_cpu_matters_less_beside_a_card() -> None:
    ready = (
        CompileReadiness("cuda", False, "triton cannot be imported"),
        CompileReadiness("cpu", False, "no C++"),
    )
    facts = machine(gpus=ONE_H200, torch=torch_on_gpu(compile=ready))
    assert the(facts, "triton").level is Level.WARNING
    assert "triton" in str(the(facts, "triton").fix)
    assert the(facts, "no C++").level is Level.NOTE


def test_headers_have_their_own_remedy() -> None:
    reason = "g++ does not find Python's headers or OpenMP"
    torch = torch_on_cpu(compile=(CompileReadiness("cpu", False, reason),))
    assert "python3-dev" in str(the(machine(torch=torch), reason).fix)


def test_little_room_for_models() -> None:
    disks = (
        Disk("models", Path("/data"), 100 * GB, 19 * GB, True),
        Disk("output", Path(), 100 * GB, 2 * GB, True),
    )
    finding = the(machine(disks=disks), "19.0 GB free for models, less than 20 GB")
    assert finding.level is Level.WARNING
    assert "SDXL download will not fit" in finding.meaning
    assert "CALOTYPE_MODELS" in str(finding.fix)
    assert not [other for other in diagnose(machine(disks=disks)) if "output" in other.found]


def test_a_folder_that_cannot_be_written() -> None:
    disks = (Disk("cache", Path("/data"), 100 * GB, 50 * GB, False),)
    assert the(machine(disks=disks), "cache folder cannot be written: /data").level is Level.WARNING


def test_little_memory_and_few_cores() -> None:
    facts = machine(memory=Memory(64 * GIB, 7 * GIB, 8 * GIB))
    assert "container's limit is 8.0 GiB" in the(facts, "7.0 GiB of main memory").found
    seen = replace(facts.fingerprint, cpu=Cpu("Some CPU", "x86_64", 64, 4))
    assert the(replace(facts, fingerprint=seen), "Only 4 of 64 cores").level is Level.NOTE
