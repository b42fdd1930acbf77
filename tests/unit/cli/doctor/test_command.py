"""`calotype doctor` as people and programs run it, each time in a process of its own."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from calotype.cli.doctor import command
from calotype.cli.doctor.diagnose import diagnose
from calotype.cli.doctor.render import show
from calotype.cli.doctor.types import Facts
from calotype.core.hardware import Gpu, GpuSurvey
from tests.unit.cli.doctor.conftest import RunPython
from tests.unit.cli.doctor.machines import H200, PretendedGpus, machine, torch_device, torch_on_gpu

_KEYS = {
    "able_to_run",
    "attention",
    "commit",
    "cpu",
    "disks",
    "findings",
    "gpus",
    "memory",
    "system",
    "toolchain",
    "torch",
    "versions",
}
_VERSIONS = {
    "calotype",
    "cuda",
    "cudnn",
    "diffusers",
    "driver",
    "driver_cuda",
    "peft",
    "python",
    "safetensors",
    "tokenizers",
    "torch",
    "torchao",
    "transformers",
    "triton",
}


def words(text: str) -> str:
    """Text without its line breaks, so that a sentence is found wherever it was wrapped."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def without_driver(run_python: RunPython) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "calotype", "doctor", COLUMNS="80")


@pytest.fixture(scope="module")
def as_json(run_python: RunPython) -> dict[str, Any]:
    done = run_python("-m", "calotype", "doctor", "--json", driver="current", STAND_IN_CARD_0_MIG_PENDING="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_json_has_its_keys(as_json: dict[str, Any]) -> None:
    assert set(as_json) == _KEYS
    assert set(as_json["versions"]) == _VERSIONS
    assert as_json["able_to_run"] is True
    assert as_json["attention"]["cpu"] == ["flash", "math"]
    assert {disk["purpose"] for disk in as_json["disks"]} == {"models", "cache", "output"}
    for finding in as_json["findings"]:
        assert set(finding) == {"level", "topic", "found", "meaning", "fix"}


def test_json_tells_what_the_driver_says(as_json: dict[str, Any]) -> None:
    assert as_json["versions"]["driver"] == "580.99.01"
    assert [gpu["name"] for gpu in as_json["gpus"]["gpus"]] == ["NVIDIA H200", "NVIDIA A100-SXM4-40GB"]
    assert len(as_json["gpus"]["gpus"][1]["mig_devices"]) == 2
    found = [(finding["level"], finding["found"]) for finding in as_json["findings"]]
    assert ("warning", "MIG mode is pending on GPU 0: off now, on after a reset") in found
    assert ("ok", "GPU 1 is partitioned into 2 slices") in found


def test_without_a_driver_it_works_and_says_what_that_means(
    without_driver: subprocess.CompletedProcess[str],
) -> None:
    assert without_driver.returncode == 0, without_driver.stderr
    text = words(without_driver.stdout)
    assert "No GPU: there is no NVIDIA driver on this machine" in text
    assert "the embedded model takes seconds, SDXL minutes" in text
    assert "Calotype runs here, on the CPU" in text
    assert "\x1b" not in without_driver.stdout


def test_no_line_is_longer_than_the_terminal(without_driver: subprocess.CompletedProcess[str]) -> None:
    assert max(len(line) for line in without_driver.stdout.splitlines()) <= 80


def test_nothing_is_said_on_stderr(without_driver: subprocess.CompletedProcess[str]) -> None:
    assert without_driver.stderr == ""


def test_cards_and_slices_fit_the_terminal_too(run_python: RunPython) -> None:
    done = run_python("-m", "calotype", "doctor", driver="current", COLUMNS="80", STAND_IN_MEMORY_ERROR="4")
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    for expected in ("NVIDIA H200", "132 SMs", "MIG-cccccccc-2222-2222-2222-222222222222", "1g.5gb"):
        assert expected in done.stdout
    assert "Insufficient Permissions" in words(done.stdout)


def shown(facts: Facts, **options: Any) -> str:
    out = io.StringIO()
    show(Console(file=out, width=80, highlight=False, markup=False, **options), facts, diagnose(facts))
    return out.getvalue()


def test_a_machine_with_a_card_is_shown() -> None:
    facts = machine(gpus=GpuSurvey("580.1", "13.0", (H200,)), torch=torch_on_gpu())
    assert "Calotype runs here, on NVIDIA H200: no warnings and no notes." in shown(facts)
    assert "flash, efficient, cudnn, math" in words(shown(facts))


def test_a_kernel_that_does_not_run_shows_its_reason() -> None:
    card = torch_device("cuda:0", "math", reason="needs a newer card")
    text = words(shown(machine(torch=torch_on_gpu(card))))
    assert "works: math" in text
    assert "flash: needs a newer card" in text


def test_a_lost_card_is_one_line() -> None:
    survey = GpuSurvey("580.1", "13.0", (H200, Gpu(1, refusals=("card: GPU is lost",))))
    text = shown(machine(gpus=survey))
    assert "GPU 1  does not answer (card: GPU is lost)" in text
    assert "unknown" not in text


def test_colour_only_repeats_what_words_say() -> None:
    coloured = shown(machine(), force_terminal=True, color_system="truecolor")
    assert "\x1b[" in coloured
    assert shown(machine()).count("note ") >= 1


def test_facts_are_gathered_from_any_source() -> None:
    facts = command.gather(PretendedGpus(GpuSurvey("580.1", "13.0", (H200,))))
    assert facts.fingerprint.driver == "580.1"
    assert facts.gpus.gpus == (H200,)


@pytest.mark.parametrize(
    "failure", ["ImportError('libcudart.so.13: cannot open')", "OSError('libcudart broken')"]
)
def test_without_torch_it_still_speaks_and_fails(run_python: RunPython, tmp_path: Path, failure: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"raise {failure}\n")
    environment = {"PYTHONPATH": str(tmp_path)}
    done = run_python("-m", "calotype", "doctor", **environment)
    assert done.returncode == 4, done.stderr
    assert "torch does not load: libcudart" in words(done.stdout)
    assert "Calotype cannot run here" in words(done.stdout)
    report = json.loads(run_python("-m", "calotype", "doctor", "--json", **environment).stdout)
    assert report["able_to_run"] is False
    assert report["torch"] is None
    assert report["findings"][0]["level"] == "problem"


def test_help(run_python: RunPython) -> None:
    done = run_python("-m", "calotype", "doctor", "--help", COLUMNS="80")
    assert done.returncode == 0
    assert "--json" in done.stdout
    assert "Check this machine" in words(done.stdout)


def test_the_command_line_loads_nothing_heavy(run_python: RunPython) -> None:
    script = "import sys, calotype.cli.main; print(*sys.modules)"
    loaded = set(run_python("-c", script).stdout.split())
    assert "calotype.cli.doctor.command" in loaded
    assert not loaded & {"torch", "diffusers", "transformers", "numpy", "pynvml", "calotype.core.nvml"}
