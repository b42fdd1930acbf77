"""The fingerprint says what matters for comparing results, and nothing about who made them."""

import getpass
import json
import os
import re
from pathlib import Path

import pytest

from calotype.cli.output import plain
from calotype.core.fingerprint import fingerprint, git_state, package_versions
from calotype.core.hardware import GpuSurvey, MigDevice, MigMode
from calotype.core.process import command_output
from calotype.engine.torch_info import full_fingerprint
from tests.unit.cli.doctor.machines import H200

GIB = 1024**3


def test_it_names_software_and_hardware() -> None:
    seen = full_fingerprint().as_dict()
    assert set(seen) == {"machine", "torch"}
    # A package's record may leave out the build that torch itself tells, as in 2.11.0 and 2.11.0+cu130.
    assert seen["torch"]["version"].startswith(str(package_versions()["torch"]))
    assert seen["machine"]["packages"] == package_versions()
    assert seen["machine"]["cpu"]["num_cores"] >= 1
    assert seen["machine"]["memory_total_bytes"] > GIB


def test_it_holds_nothing_personal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada-lovelace")
    monkeypatch.setenv("USER", "ada-lovelace")
    text = json.dumps(plain(full_fingerprint().as_dict()))
    monkeypatch.undo()
    assert "ada-lovelace" not in text
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text
    for name in (os.uname().nodename, getpass.getuser()):
        assert not re.search(rf"\b{re.escape(name)}\b", text), f"{name!r} is in the fingerprint"


def test_it_leaves_out_what_singles_out_a_card_or_changes() -> None:
    part = MigDevice(0, "MIG 1g.5gb", "MIG-secret", 5 * GIB, 12345, 14, 9, 0)
    gpu = type(H200)(0, "A100", "GPU-secret", 40 * GIB, 54321, 108, "8.0", MigMode(True, True), (part,))
    seen = fingerprint(GpuSurvey("580.1", "13.0", (gpu,)))
    text = json.dumps(plain(seen))
    assert "secret" not in text
    assert "12345" not in text
    assert "54321" not in text
    assert seen.gpus[0].mig_devices == ("MIG 1g.5gb",)
    assert seen.gpus[0].mig_enabled is True


def test_it_is_the_same_twice() -> None:
    assert fingerprint() == fingerprint()


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    assert command_output(["git", *identity, *arguments], folder=folder) is not None


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "calotype"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1\n")
    git(tmp_path, "init", "--quiet")
    return package


def test_a_checkout_without_commits(checkout: Path) -> None:
    assert git_state(checkout) == (None, None)


def test_a_checkout_tells_its_commit_and_its_changes(checkout: Path) -> None:
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "first")
    commit, modified = git_state(checkout)
    assert commit is not None
    assert re.fullmatch(r"[0-9a-f]{40,64}", commit)
    assert modified is False
    (checkout / "__init__.py").write_text("two = 2\n")
    assert git_state(checkout) == (commit, True)


def test_an_installed_package_does_not_take_the_commit_around_it(checkout: Path) -> None:
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "first")
    installed = checkout.parents[1] / ".venv" / "site-packages" / "calotype"
    installed.mkdir(parents=True)
    assert git_state(installed) == (None, None)


def test_a_hooks_variables_do_not_mislead(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "first")
    expected = git_state(checkout)
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    assert git_state(checkout) == expected != (None, None)


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_state(checkout) == (None, None)
