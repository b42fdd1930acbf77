"""A GPU is woken before torch is imported, by commands that are going to use it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calotype.core.cuda_init import init_cuda_driver_async

_SOURCE = Path(__file__).with_name("stand_in_cuda.c")
_WAKE = (
    "import sys; from calotype.core.cuda_init import init_cuda_driver_async as init; "
    "init(*sys.argv[1:] or [None]).join()"
)
_GENERATE = """
import sys
from calotype.cli import generate_run
from calotype.cli.main import run

def woken(device):
    print(f"{device}, torch is here: {'torch' in sys.modules}")

generate_run.init_cuda_driver_async = woken
sys.argv = ["calotype", "generate", "x", "--device", "cpu", "--model", "no-such-model"]
run()
"""
_WORKER = """
import sys
from calotype.serve.worker import main
from calotype.serve.worker.options import parsed

def woken(device):
    print(f"{device}, torch is here: {'torch' in sys.modules}")

main.init_cuda_driver_async = woken
main.loader_of(parsed(["--fd=0", "--device=cpu"])[1])
"""


def _said(script: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    library = str(folder / "libcuda.so.1")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, str(_SOURCE)], check=True, timeout=300
    )
    return folder


@pytest.mark.parametrize(
    ("device", "fails", "asked"),
    [
        ((), "", ["init 0", "get 0", "retain 40"]),
        (("cuda",), "", ["init 0", "get 0", "retain 40"]),
        (("cuda:3",), "", ["init 0", "get 3", "retain 43"]),
        ((), "init", ["init 0"]),
        (("cuda:3",), "get", ["init 0", "get 3"]),
    ],
)
def test_asks_the_driver_for_the_context_that_torch_will_use(
    driver: Path, tmp_path: Path, device: tuple[str, ...], fails: str, asked: list[str]
) -> None:
    calls = tmp_path / "calls"
    _said(_WAKE, *device, LD_LIBRARY_PATH=str(driver), CALLS=str(calls), FAILS=fails)
    assert calls.read_text().splitlines() == asked


@pytest.mark.parametrize("device", ["cpu", "cuda:x", "cuda:-1", "gpu"])
def test_leaves_alone_what_is_no_gpu(device: str) -> None:
    assert init_cuda_driver_async(device) is None


def test_says_nothing_where_there_is_no_driver(tmp_path: Path) -> None:
    # An unreadable library ends the search.
    (tmp_path / "libcuda.so.1").touch()
    assert _said(f"{_WAKE}; print('alive')", LD_LIBRARY_PATH=str(tmp_path)) == "alive\n"


@pytest.mark.parametrize("script", [_GENERATE, _WORKER])
def test_comes_before_torch_is_imported(script: str) -> None:
    assert _said(script) == "cpu, torch is here: False\n"
