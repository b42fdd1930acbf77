"""`pip install calotype` without extras: every command has help, and says what it needs beyond that."""

import json
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from calotype.core.errors import ExitCode
from calotype.core.extras import EXTRAS, MissingExtraError, missing_extra, require_extra
from tests.unit.cli.every_command import commands
from tests.unit.cli.installation import ROOT, Installation, built_wheel, installed

SERVING = ("serve", "deploy", "deployments", "logs", "undeploy", "query", "keys list", "bench serve")
MODULES = {
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "protobuf": "google.protobuf",
}
"""Distributions whose modules are called otherwise."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Calotype and what it requires, without any extra."""
    folder = tmp_path_factory.mktemp("base")
    return installed(built_wheel(folder), folder / "environment")


def outcomes(base: Installation, tmp_path: Path, mode: str) -> dict[str, tuple[int, str]]:
    places = {f"CALOTYPE_{name}": str(tmp_path / name) for name in ("MODELS", "CACHE", "STATE")}
    done = base.run("python", str(Path(__file__).with_name("every_command.py")), mode, **places)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    return {name: (code, said) for name, (code, said) in seen.items()}


def test_every_command_has_help(base: Installation, tmp_path: Path) -> None:
    seen = outcomes(base, tmp_path, "help")
    assert set(seen) == {name for name, _ in commands()}
    assert {name: said for name, (code, said) in seen.items() if code != ExitCode.OK} == {}


def test_no_command_ends_in_a_traceback_and_those_that_serve_say_what_to_install(
    base: Installation, tmp_path: Path
) -> None:
    seen = outcomes(base, tmp_path, "call")
    failed = {
        name: said for name, (code, said) in seen.items() if code == ExitCode.BUG or "Traceback" in said
    }
    assert failed == {}
    for name in SERVING:
        code, said = seen[name]
        assert code == ExitCode.BAD_REQUEST
        assert said.startswith("error: this command needs ")
        assert said.endswith(": pip install 'calotype[serve]'\n")


def test_pictures_are_made_without_any_extra(base: Installation, tmp_path: Path) -> None:
    small = ("--steps", "1", "--width", "64", "--height", "64", "--out", str(tmp_path / "out"))
    done = base.run("calotype", "generate", "a red apple", *small, CALOTYPE_CACHE=str(tmp_path / "cache"))
    assert (done.returncode, "Traceback" in done.stderr) == (ExitCode.OK, False), done.stderr
    assert len(list((tmp_path / "out").glob("*.png"))) == 1


def test_every_package_of_an_extra_is_known_by_its_module() -> None:
    """So that a package added to pyproject.toml is named by the error, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: {_module(Requirement(line).name) for line in lines}
        for extra, lines in project["optional-dependencies"].items()
        if extra != "dev"
    }
    assert declared == {extra: set(modules) for extra, modules in EXTRAS.items()}


def _module(distribution: str) -> str:
    return MODULES.get(distribution, distribution.replace("-", "_"))


@pytest.mark.parametrize(
    ("module", "extra"),
    [("grpc", "serve"), ("uvicorn.protocols", "serve"), ("google", "serve"), ("duckdb", "query")],
)
def test_a_module_that_is_absent_is_told_with_its_extra(module: str, extra: str) -> None:
    missing = missing_extra(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert missing is not None
    assert missing.extra == extra


def test_a_module_of_no_extra_stays_a_bug() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'calotype.nope'", name="calotype.nope")) is None


def test_one_absent_package_of_an_extra_is_found_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_extra("serve")
    monkeypatch.setitem(EXTRAS, "serve", (*EXTRAS["serve"], "no_such_package"))
    with pytest.raises(MissingExtraError, match="needs no_such_package: pip install 'calotype\\[serve\\]'"):
        require_extra("serve")
