"""What is rendered reads as a person would write it, is a shell's, and holds nothing a value smuggled in.

Golden files are made anew by: PYTHONPATH=src python -m tests.unit.launch.test_scripts
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calotype.core.errors import RequestError
from calotype.launch.registry import open_backend
from tests.unit.launch.specs import CONTAINER, ELASTIC, HERE, SWEEP, TRAINING, spec

GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "training.sbatch": ("slurm", TRAINING),
    "container.sbatch": ("slurm", CONTAINER),
    "sweep.sbatch": ("slurm", SWEEP),
    "elastic.sbatch": ("slurm", ELASTIC),
    "here.sh": ("local", HERE),
    "sweep.sh": ("local", {**SWEEP, "slurm": {}}),
}


def rendered(backend: str, values: dict[str, Any], **changes: Any) -> str:
    files = open_backend(backend).render(spec(values, **changes)).files
    return next(iter(files.values()))


@pytest.mark.parametrize("name", CASES)
def test_scripts_are_as_they_were_read_last(name: str) -> None:
    assert rendered(*CASES[name]) == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", CASES)
def test_scripts_are_a_shells(name: str) -> None:
    subprocess.run(["bash", "-n"], input=rendered(*CASES[name]), text=True, check=True, timeout=300)


_ANY = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs", "Cf"], exclude_characters="\ufeff"), max_size=20
)


@settings(max_examples=25, deadline=None)
@given(word=_ANY, value=_ANY, backend=st.sampled_from(["slurm", "local"]))
def test_no_value_is_read_by_the_shell(word: str, value: str, backend: str) -> None:
    script = rendered(backend, HERE, command=["train", word], environment={"A": value})
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=300)
    (export,) = [line for line in script.splitlines() if line.startswith("export A=")]
    # A second reader agrees, which knows no shell but its quotes.
    assert shlex.split(export) == ["export", f"A={value}"]
    lines = script.replace("\\\n", " ").splitlines()
    (command,) = [line for line in lines if "-m calotype" in line and not line.startswith("#")]
    words = shlex.split(command)
    start = words.index("calotype")
    assert words[start + 1 : start + 3] == ["train", word]


@pytest.mark.parametrize(
    ("backend", "changes", "says"),
    [
        ("slurm", {"work_folder": "/my folder"}, "work_folder: '/my folder' may only hold letters"),
        ("slurm", {"work_folder": "/50%"}, "work_folder: '/50%' may only hold"),
        ("slurm", {"directory": "/a b"}, "directory: '/a b' may only hold"),
        ("slurm", {"mounts": ["/a:/b"]}, "mounts: mounts need a container; set image"),
        ("slurm", {"mounts": ["pvc:a:/b"], "image": "x"}, "mounts: pvc:a:/b is a Kubernetes volume claim"),
        ("local", {"nodes": 2}, "nodes: 2 nodes are more than this one machine; use nodes=1"),
        ("local", {"image": "x"}, "image: local jobs run in this machine's own Python"),
    ],
)
def test_what_a_back_end_cannot_do_is_refused(backend: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError) as refused:
        rendered(backend, HERE, **changes)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("image", "pyxis"),
    [
        ("registry.example.com/team/calotype:0.1", "registry.example.com#team/calotype:0.1"),
        ("localhost:5000/calotype", "localhost:5000#calotype"),
        ("team/calotype:0.1", "team/calotype:0.1"),
        ("nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io#nvidia/pytorch:24.01-py3"),
        ("/apps/calotype.sqsh", "/apps/calotype.sqsh"),
    ],
)
def test_images_are_named_as_pyxis_names_them(image: str, pyxis: str) -> None:
    script = rendered("slurm", CONTAINER, image=image)
    assert f"--container-image={shlex.quote(pyxis)} " in script


def test_how_to_import_an_image_is_told_unless_it_is_there() -> None:
    (note,) = open_backend("slurm").render(spec(CONTAINER)).notes
    assert (
        "enroot import --output /SHARED/calotype-0.1.sqsh docker://registry.example.com#team/calotype:0.1"
        in note
    )
    assert not open_backend("slurm").render(spec(CONTAINER, image="/apps/calotype.sqsh")).notes


if __name__ == "__main__":
    for name, case in CASES.items():
        (GOLDEN / name).write_text(rendered(*case))
