"""Compilers that are there, that are not, and that are there but cannot build."""

from pathlib import Path

import pytest

from calotype.core.process import command_output
from calotype.core.toolchain import read_toolchain, version_in


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright", "12.2.0"),
        ("gcc (crosstool-NG 1.25.0.28_c1b8ad5) 11.4.1", "11.4.1"),
        ("gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)", "11.4.1"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", "18.1.3"),
        ("nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88", "13.0.88"),
        ("no number at all", "unknown"),
    ],
)
def test_the_version_is_found_in_the_banner(banner: str, version: str) -> None:
    assert version_in(banner) == version


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what the test puts there."""
    for name in ("CC", "CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put_compiler(folder: Path, name: str, *, builds: bool) -> Path:
    script = folder / name
    greeting = 'if [ "$1" = --version ]; then echo "g++ (Test) 14.1.0"; exit 0; fi'
    script.write_text(f"#!/bin/sh\n{greeting}\nexit {0 if builds else 1}\n")
    script.chmod(0o755)
    return script


def test_no_compilers(tools: Path) -> None:
    found = read_toolchain()
    assert (found.c, found.cxx) == (None, None)


@pytest.mark.parametrize("builds", [True, False])
def test_a_compiler_is_tried_not_only_found(tools: Path, builds: bool) -> None:
    put_compiler(tools, "g++", builds=builds)
    compiler = read_toolchain().cxx
    assert compiler is not None
    assert (compiler.name, compiler.version, compiler.builds_extensions) == ("g++", "14.1.0", builds)


def test_the_users_choice_of_compiler_wins(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_compiler(tools, "g++", builds=True)
    chosen = put_compiler(tools, "my-g++", builds=True)
    monkeypatch.setenv("CXX", str(chosen))
    compiler = read_toolchain().cxx
    assert compiler is not None
    assert compiler.name == "my-g++"


def test_the_compiler_that_builds_the_stand_in_builds_extensions() -> None:
    compiler = read_toolchain().c
    assert compiler is not None
    assert compiler.version != "unknown"


def test_a_failing_program_answers_nothing(tools: Path) -> None:
    put_compiler(tools, "failing", builds=False)
    assert command_output(["failing"]) is None
    assert command_output(["absent"]) is None
    (tools / "not-a-program").write_bytes(b"\x00")
    (tools / "not-a-program").chmod(0o755)
    assert command_output(["not-a-program"]) is None
