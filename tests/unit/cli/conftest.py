"""Runs the command line inside the test's process, with folders of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from calotype.cli.main import run


@dataclass(frozen=True)
class Outcome:
    """What a user saw."""

    code: int
    out: str
    err: str


Calotype = Callable[..., Outcome]


@pytest.fixture
def calotype(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calotype:
    """`calotype("generate", "a cat")` with an empty model folder and cache."""
    monkeypatch.setenv("CALOTYPE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("CALOTYPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return call
