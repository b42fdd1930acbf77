"""Dockerfiles and the compose file, as their own checkers see them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.containers.podman import REPOSITORY

FOLDER = REPOSITORY / "containers"
BIN = Path(sys.executable).parent
DOCKERFILES = sorted(path.name for path in FOLDER.glob("*.Dockerfile"))


def checked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfiles_pass_the_linter(name: str) -> None:
    result = checked(BIN / "hadolint", FOLDER / name)
    assert result.returncode == 0, result.stdout


def test_the_linter_looks(tmp_path: Path) -> None:
    careless = (
        (FOLDER / "serve.Dockerfile").read_text().replace("bookworm\n", "bookworm\nFROM debian:latest\n")
    )
    (tmp_path / "Dockerfile").write_text(careless)
    assert "DL3007" in checked(BIN / "hadolint", tmp_path / "Dockerfile").stdout


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_are_pinned_run_as_nobody_special_and_say_how_they_are(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert re.search(r"^ARG BASE=\S+:\S*\d+\.\d+\.\d+", text, re.M)
    assert text.count("\nFROM ") > 2
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", text, re.M)
    assert "\nHEALTHCHECK " in text


def test_the_compose_file_passes_its_schema() -> None:
    result = checked(
        BIN / "check-jsonschema", "--builtin-schema=vendor.compose-spec", FOLDER / "compose.yaml"
    )
    assert result.returncode == 0, result.stdout


def test_the_schema_of_compose_files_looks(tmp_path: Path) -> None:
    wrong = (FOLDER / "compose.yaml").read_text().replace("restart:", "restarts:")
    (tmp_path / "compose.yaml").write_text(wrong)
    result = checked(
        BIN / "check-jsonschema", "--builtin-schema=vendor.compose-spec", tmp_path / "compose.yaml"
    )
    assert "'restarts' was unexpected" in result.stdout


def test_one_machine_serves_on_loopback_with_a_gpu_or_without() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["volumes"] == ["state:/var/lib/calotype"]
        assert service["restart"] == "unless-stopped"
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    (gpu,) = services["serve"]["deploy"]["resources"]["reservations"]["devices"]
    assert (gpu["driver"], gpu["capabilities"]) == ("nvidia", ["gpu"])
    assert "deploy" not in services["serve-cpu"]


def test_health_is_asked_the_same_everywhere() -> None:
    """The image's own health check is what the compose file repeats."""
    asked = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["serve"]["healthcheck"]["test"][
        -1
    ]
    assert asked in (FOLDER / "serve.Dockerfile").read_text()
