"""The examples in the help of every command: present, and accepted by the parser."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from calotype.cli.examples import PROMPT
from calotype.cli.main import app
from tests.unit.cli.every_command import commands


def example_lines(command: Any) -> list[str]:
    """The command lines in the `Examples` part of a command's help."""
    title, *lines = (command.epilog or "").split("\n\n")
    assert title == "Examples:"
    assert all(line.startswith(PROMPT) for line in lines)
    return [line.removeprefix(PROMPT) for line in lines]


def parsed_path(words: list[str]) -> str:
    """The command that a command line names; raises a usage error for arguments that it does not take."""
    program, *rest = words
    assert program == "calotype"
    command: Any = typer.main.get_command(app)
    context: Any = None
    path: list[str] = []
    while hasattr(command, "commands"):
        if rest[0] not in command.commands and path == ["train"]:
            rest = ["run", *rest]
        name, *rest = rest
        context = command.make_context(program, [name], parent=context)
        command = command.commands[name]
        path.append(name)
    command.make_context(path[-1], rest, parent=context)
    return " ".join(path)


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_every_command_has_examples_that_parse(
    name: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    monkeypatch.setenv("CALOTYPE_MODELS", str(tmp_path / "models"))
    lines = example_lines(command)
    assert 1 <= len(lines) <= 3
    assert [parsed_path(shlex.split(line)) for line in lines] == [name] * len(lines)


def test_an_example_with_an_unknown_option_is_refused() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed_path(["calotype", "generate", "x", "--stepz", "3"])


def test_the_help_shows_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    command = dict(commands())["mig check"]
    with pytest.raises(SystemExit):
        command.main(["--help"], prog_name="calotype mig check")
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert "$ calotype mig check mig-parted.yaml" in shown
