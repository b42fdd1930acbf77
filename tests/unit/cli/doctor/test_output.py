"""The one place that prints."""

import json
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path

import pydantic
import pytest

from calotype.cli.output import console, plain, print_json
from tests.unit.cli.doctor.conftest import RunPython


class Colour(StrEnum):
    RED = "red"


class Size(Enum):
    LARGE = 3


@dataclass(frozen=True)
class Thing:
    where: Path
    colour: Colour
    sizes: tuple[Size, ...]
    inner: "Thing | None" = None


class Asked(pydantic.BaseModel):
    prompt: str
    path: Path


def test_everything_becomes_plain() -> None:
    thing = Thing(Path("/a/b"), Colour.RED, (Size.LARGE,), Thing(Path("c"), Colour.RED, ()))
    assert plain({"thing": thing, Colour.RED: {"b", "a"}}) == {
        "thing": {
            "where": "/a/b",
            "colour": "red",
            "sizes": [3],
            "inner": {"where": "c", "colour": "red", "sizes": [], "inner": None},
        },
        "red": ["a", "b"],
    }
    assert plain(Asked(prompt="x", path=Path("y"))) == {"prompt": "x", "path": "y"}


def test_json_has_sorted_keys_and_real_letters(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json({"z": 1, "a": "äpfel 🍎"})
    out = capfdbinary.readouterr().out
    assert out.decode("utf-8") == '{\n  "a": "äpfel 🍎",\n  "z": 1\n}\n'


@pytest.mark.parametrize("value", [object(), b"bytes", {"deep": [object()]}])
def test_what_has_no_json_form_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        plain(value)


def test_a_class_is_not_an_object() -> None:
    with pytest.raises(TypeError):
        plain(Thing)


def test_nan_is_refused_because_json_has_none() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"x": float("nan")})


def test_the_console_prints_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("pip install 'calotype[quant]' [red] :apple:")
    console(stderr=True).print("aside")
    said = capsys.readouterr()
    assert said.out == "pip install 'calotype[quant]' [red] :apple:\n"
    assert said.err == "aside\n"


def test_no_color_takes_colours_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    console().print("hot", style="red")
    assert "\x1b[31m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    console().print("hot", style="red")
    assert "\x1b[31m" not in capsys.readouterr().out


def test_json_is_utf8_whatever_the_terminal_says(run_python: RunPython) -> None:
    script = "from calotype.cli.output import print_json; print_json(['äpfel'])"
    done = run_python("-c", script, PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout) == ["äpfel"], done.stderr
