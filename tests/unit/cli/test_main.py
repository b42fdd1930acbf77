"""The root of the command line: quick, complete, with exit codes that mean something."""

import re
import subprocess
import sys
from pathlib import Path

from calotype import __version__
from calotype.core.errors import ExitCode
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
