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


@pytest.mark.parametrize(
    "module", ["calotype.cli.main", "typer", "calotype.core.errors", "calotype.cli.update"]
)
@pytest.mark.parametrize("where", ["in the import", "in a callback, where Python drops exceptions"])
def test_ctrl_c_while_any_module_loads_ends_the_command_and_shows_nothing(module: str, where: str) -> None:
    """The signal is sent at the import of that module, by the process itself: never too early or too late."""
    code = (
        "import os, signal, sys, weakref\n"
        "class Watched: pass\n"
        "def interrupt(*_): os.kill(os.getpid(), signal.SIGINT)\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        f"            if {where == 'in the import'}: return interrupt()\n"
        "            watched = Watched(); held = weakref.ref(watched, interrupt); del watched\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['calotype', '--version']\n"
        "from calotype.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.CANCELLED, "", "")


def test_ctrl_c_that_the_caller_ignores_stays_ignored() -> None:
    """As in the background of a script."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import sys; sys.argv = ['calotype', '--version']\n"
        "from calotype.__main__ import main\n"
        "try: main()\n"
        "finally: assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")


def test_next_to_nothing_loads_before_ctrl_c_is_handled() -> None:
    """Python imports these modules before any code of ours can handle a signal."""
    code = (
        "import sys; before = set(sys.modules); import calotype.__main__;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == ["calotype", "calotype.__main__", "calotype.version"]


def on_a_full_disk(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command whose `folder` is a full disk, in namespaces of its own, where any user may mount."""
    mount = 'mount -t tmpfs -o size=4k tmpfs "$0" && head -c 4096 /dev/zero >"$0/filler" && exec "$@"'
    command = [sys.executable, "-m", "calotype", *words]
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(folder), *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "CALOTYPE_STATE": str(folder / "state")},
    )


@pytest.mark.parametrize(
    "words",
    [
        ("models", "random", "emoji", "{disk}/model"),
        ("generate", "x", "--steps", "1", "--width", "64", "--height", "64", "--out", "{disk}/out"),
        ("deploy", "emoji", "--engine", "nothing", "--systemd", "--name", "one"),
    ],
    ids=["a model", "a picture", "a deployment"],
)
def test_a_full_disk_is_told_from_memory_that_is_too_small(tmp_path: Path, words: tuple[str, ...]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = on_a_full_disk(disk, *(word.format(disk=disk) for word in words))
    assert done.returncode == ExitCode.DISK_FULL
    assert "No space left on device" in done.stderr
    assert str(disk) in done.stderr
    assert "Traceback" not in done.stderr


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
