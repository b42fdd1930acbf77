"""Node packages found among what is installed: good ones are used, bad ones are named and left out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calotype.workflow.node_api import ANY, COMBO, FLOAT, INT, LATENT, Input, NodeDef, Output
from calotype.workflow.registry import load_registry

GOOD = """
from calotype.workflow.node_api import INT, Input, NodeDef, Output

def double(context, *, value):
    return (2 * value,)

NODES = [NodeDef("Double{name}", double, (Input("value", INT, 1),), (Output(INT),))]
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package on the path as an installer would: its code and its dist-info."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(name: str, source: str, points: str = "") -> None:
        (tmp_path / f"{name}.py").write_text(source)
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(points or f"[calotype.nodes]\nall = {name}:NODES\n")

    return put


def test_nodes_of_an_installed_package_are_there(install: Install) -> None:
    install("calotype_good", GOOD.format(name="A"))
    registry = load_registry()
    assert registry["DoubleA"].module == "calotype_good"
    assert registry["DoubleA"].run(None, value=4) == (8,)
    assert registry.left_out == ()


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("raises", "raise RuntimeError('no GPU here')", "RuntimeError: no GPU here"),
        ("exits", "import sys; sys.exit(3)", "SystemExit: 3"),
        ("imports", "import there_is_no_such_library", "ModuleNotFoundError"),
        ("empty", "", "no attribute 'NODES'"),
        ("breaks", "def x(:", "SyntaxError"),
        ("number", "NODES = 5", "is not a sequence of NodeDef but int"),
        ("wrong", "NODES = [1]", "is not a sequence of NodeDef"),
        ("nonsense", GOOD.format(name="N").replace("INT, 1", "INT, 1, minimum=5"), "default 1 is outside"),
        ("twice", GOOD.format(name="T") + "NODES *= 2", "names exist already: DoubleT"),
    ],
)
def test_a_bad_package_is_named_and_the_others_stay(
    install: Install, name: str, source: str, words: str
) -> None:
    install(f"calotype_a_{name}", source)
    install(f"calotype_good_{name}", GOOD.format(name="Good"))
    registry = load_registry()
    assert "DoubleGood" in registry
    (left_out,) = registry.left_out
    assert left_out.package == f"calotype_a_{name} (all = calotype_a_{name}:NODES)"
    assert words in left_out.reason


def test_no_package_takes_the_place_of_another_or_of_ours(install: Install) -> None:
    install("calotype_first", GOOD.format(name="Same"), "[calotype.nodes]\na = calotype_first:NODES\n")
    install("calotype_second", GOOD.format(name="Same"), "[calotype.nodes]\nb = calotype_second:NODES\n")
    registry = load_registry()
    assert registry["DoubleSame"].module == "calotype_first"
    assert [one.package.split()[0] for one in registry.left_out] == ["calotype_second"]


def test_broken_metadata_hides_no_other_package(install: Install) -> None:
    install("calotype_garbled", GOOD.format(name="G"), "[calotype.nodes]\nthis is no line of it\n")
    install("calotype_whole", GOOD.format(name="W"))
    registry = load_registry()
    assert "DoubleW" in registry
    (left_out,) = registry.left_out
    assert "calotype_garbled" in left_out.package
    assert "entry points" in left_out.reason


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"name": ""}, "needs a name"),
        ({"run": 5}, "must be callable"),
        ({"inputs": (Input("", INT),)}, "a name and a type"),
        ({"inputs": (Input("a", INT), Input("a", INT))}, "declared twice: a"),
        ({"inputs": (Input("a", COMBO),)}, "COMBO and choices go together"),
        ({"inputs": (Input("a", INT, choices=("x",)),)}, "COMBO and choices go together"),
        ({"inputs": (Input("a", LATENT, minimum=1),)}, "only INT and FLOAT have limits"),
        ({"inputs": (Input("a", INT, 9, maximum=8),)}, "default 9 is outside"),
        ({"inputs": (Input("a", ANY, lazy=True),)}, "no `needs`"),
        ({"outputs": ()}, "never run"),
        ({"name": 5}, "needs a name"),
        ({"help": 5}, "5 is not text"),
        ({"inputs": [Input("a", INT)]}, "inputs are a tuple of Input"),
        ({"outputs": ("LATENT",)}, "outputs are a tuple of Output"),
        ({"inputs": (Input("a", INT, default=object()),)}, "cannot be written into a graph"),
        ({"inputs": (Input("a", FLOAT, default=float("nan")),)}, "cannot be written into a graph"),
        ({"inputs": (Input("a", FLOAT, maximum=float("inf")),)}, "finite numbers"),
    ],
)
def test_declarations_that_make_no_sense_are_refused_where_they_are_made(
    declared: dict[str, object], words: str
) -> None:
    sound: dict[str, object] = {"name": "X", "run": lambda _: (), "outputs": (Output(LATENT),)}
    with pytest.raises(ValueError, match=words):
        NodeDef(**{**sound, **declared})  # type: ignore[arg-type]


def test_describing_and_checking_loads_no_torch() -> None:
    program = """
import pkgutil, sys
import calotype.workflow
for module in pkgutil.iter_modules(calotype.workflow.__path__, "calotype.workflow."):
    __import__(module.name)
calotype.workflow.registry.load_registry()
heavy = {"torch", "diffusers", "transformers", "numpy", "safetensors"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
