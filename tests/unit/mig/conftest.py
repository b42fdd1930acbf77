"""Pretended machines, and the three ways to talk to them: our own driver, nvidia-smi, and NVML's library."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from calotype.cli.main import run
from calotype.mig.simulation import fake_smi
from calotype.mig.simulation.fake_host import FakeHost, read_host, shared_host, write_host
from tests.unit.mig.wire import served

_SOURCE = Path(__file__).with_name("stand_in_nvml.c")


@dataclass(frozen=True)
class Outcome:
    """What a user saw."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Machine:
    """A pretended machine in a file, and the command line beside it."""

    path: Path
    call: Callable[..., Outcome]

    def mig(self, *arguments: object) -> Outcome:
        """`calotype mig …` on this machine."""
        return self.call("mig", *arguments, "--driver", f"simulated:{self.path}")

    @property
    def host(self) -> FakeHost:
        return read_host(self.path)

    def become(self, host: FakeHost) -> None:
        write_host(self.path, host)

    def change(self, how: Callable[[FakeHost], object]) -> None:
        with shared_host(self.path) as host:
            how(host)


@pytest.fixture
def calotype(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """The command line in this process, with a state folder of its own."""
    monkeypatch.setenv("CALOTYPE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("CALOTYPE_MIG_DRIVER", raising=False)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return call


@pytest.fixture
def machine(tmp_path: Path, calotype: Callable[..., Outcome]) -> Machine:
    return Machine(tmp_path / "machine.json", calotype)


@pytest.fixture
def nvidia_smi(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvidia-smi on PATH that drives the machine."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m calotype.mig.simulation.fake_smi "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv(fake_smi.VARIABLE, str(machine.path))
    return program


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in libraries: `current` and `old`."""
    folder = tmp_path_factory.mktemp("nvml")
    for name, flags in {"current": [], "old": ["-DOLD_DRIVER"]}.items():
        (folder / name).mkdir()
        command = ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", *flags]
        subprocess.run(
            [*command, "-o", folder / name / "libnvidia-ml.so.1", _SOURCE], check=True, timeout=300
        )
    return folder


NvmlRun = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def with_nvml(machine: Machine, nvml_library: Path, tmp_path: Path) -> Iterator[NvmlRun]:
    """Run `calotype mig …` in a process of its own, with the real bindings on the stand-in library."""
    socket = tmp_path / "nvml.sock"
    environment = {**os.environ, "STAND_IN_NVML_SOCKET": str(socket)}
    environment["CALOTYPE_STATE"] = str(tmp_path / "state")

    def mig(*arguments: object, library: str = "current") -> subprocess.CompletedProcess[str]:
        environment["LD_LIBRARY_PATH"] = str(nvml_library / library)
        return subprocess.run(
            [sys.executable, "-m", "calotype", "mig", *map(str, arguments), "--driver", "nvml"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    with served(machine.path, socket):
        yield mig
