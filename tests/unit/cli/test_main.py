"""The root of the command line: quick, complete, with exit codes that mean something."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from calotype import __version__
from calotype.core.errors import ExitCode
from calotype.models import catalogue
from tests.unit.cli.conftest import Calotype

ROOT = Path(__file__).parents[3]


def test_help_loads_nothing_heavy() -> None:
    """What makes --help slow is importing torch and its kin; none of them may be loaded for it."""
    code = (
        "import sys; from calotype.cli.main import run; run(['--help']);"
        "heavy = {'torch', 'diffusers', 'transformers', 'numpy', 'scipy', 'PIL'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_installed_command_and_the_module_are_the_same() -> None:
    command = [sys.executable, "-m", "calotype", "--version"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
        == f"calotype {__version__}\n"
    )


def test_usage_errors_end_with_two(calotype: Calotype) -> None:
    for arguments in (("nope",), ("generate", "x", "--nope"), ("generate", "x", "--steps", "many")):
        assert calotype(*arguments).code == ExitCode.BAD_REQUEST


def test_exit_codes_are_documented(calotype: Calotype) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    epilog = " ".join(calotype("--help").out.split())
    for code in ExitCode:
        assert re.search(rf"\| {int(code)} \|", readme)
        assert re.search(rf"\b{int(code)} \w", epilog)


def test_a_reader_that_leaves_is_no_bug() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "calotype", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=300)
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitCode.READER_LEFT, b"")


def test_a_terminal_that_lacks_a_sign_gets_a_question_mark() -> None:
    command = [sys.executable, "-m", "calotype", "models", "show", "sd15"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=ascii_only, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert "512?512" in done.stdout


def test_a_name_that_is_no_text_is_told_to_programs_so_that_the_file_is_found(calotype: Calotype) -> None:
    folder = os.fsdecode(b"caf\xe9")
    seen = calotype("generate", "x", "--steps", 1, "--width", 64, "--height", 64, "--out", folder, "--json")
    (made,) = json.loads(seen.out)
    assert Path(made["file"]).is_file()
    assert Path(made["file"]).parent == Path(folder)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("generate", "x", "--steps", "abc"), "--steps: 'abc' is not a whole number"),
        (("generate", "x", "-n", "1.5"), "--count: '1.5' is not a whole number"),
        (("generate", "x", "--cfg", "much"), "--cfg: 'much' is not a number"),
        (("mig", "plan", "x", "--most", "21"), "--most: '21' is out of range; it must be at most 20"),
        (
            ("profile", "trace", "x", "--top", "0"),
            "--top: '0' is out of range; it must be at least 1",
        ),
    ],
)
def test_a_value_that_an_option_does_not_take_is_told_with_its_rule(
    calotype: Calotype, words: tuple[str, ...], told: str
) -> None:
    seen = calotype(*words)
    assert (seen.code, seen.err) == (ExitCode.BAD_REQUEST, f"error: {told}\n")


def test_an_option_that_is_not_there_is_still_told_by_the_command(calotype: Calotype) -> None:
    seen = calotype("generate", "x", "--stepz", "3")
    assert seen.code == ExitCode.BAD_REQUEST
    assert "--steps" in seen.err


def test_ctrl_c_ends_with_a_word(calotype: Calotype, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "names", interrupted)
    seen = calotype("models", "list")
    assert (seen.code, seen.err) == (ExitCode.CANCELLED, "cancelled\n")


def test_ctrl_c_while_the_command_line_loads_shows_no_trace() -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'calotype.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from calotype.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (ExitCode.CANCELLED, "")


def test_completion_offers_samplers() -> None:
    environment = {
        "_CALOTYPE_COMPLETE": "complete_bash",
        "COMP_WORDS": "calotype generate --sampler dpmpp_3",
        "COMP_CWORD": "3",
    }
    code = "from calotype.__main__ import main; import sys; sys.argv = ['calotype']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == ["dpmpp_3m_sde"]


def test_the_python_in_the_readme_runs(calotype: Calotype) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    # What it says of deployments is tested with deployments.
    example, _ = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert Path("apple.png").is_file()
