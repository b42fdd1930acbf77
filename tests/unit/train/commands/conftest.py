"""A model, pictures and a recipe small enough to go through whole commands, and a way to type those."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from calotype.cli.main import run
from calotype.spec.recipe import Recipe
from tests.small_models import NATIVE_SIZE, shrunk_folder

NUM_PICTURES = 10
MICRO = 2


@dataclass(frozen=True)
class Typed:
    """What a user saw."""

    code: int
    out: str
    err: str


Calotype = Callable[..., Typed]
Recipes = Callable[..., Recipe]


@pytest.fixture
def calotype(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calotype:
    """`calotype("train", "emoji")` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Typed:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        seen = capsys.readouterr()
        return Typed(code, seen.out, seen.err)

    return call


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {
        "plain": shrunk_folder(place, "emoji"),
        "other": shrunk_folder(place, "emoji", seed=1),
        "sdxl": shrunk_folder(place, "sdxl"),
    }


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise, which an autoencoder cannot map to one colour, each picture with a caption."""
    folder = tmp_path_factory.mktemp("pictures")
    generator = torch.Generator().manual_seed(0)
    for number in range(NUM_PICTURES):
        pixels = torch.randint(0, 256, (NATIVE_SIZE, NATIVE_SIZE, 3), generator=generator, dtype=torch.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels.numpy()).save(buffer, "PNG")
        (folder / f"p{number:02d}.png").write_bytes(buffer.getvalue())
        (folder / f"p{number:02d}.txt").write_text(f"noise number {number}")
    return folder


@pytest.fixture
def recipe_of(models: dict[str, Path], pictures: Path, tmp_path: Path) -> Recipes:
    """A recipe on the pictures; `recipe_of(data={"kind": ...}, trainer={...})` changes parts of it."""

    def make(name: str = "plain", /, **parts: dict[str, Any]) -> Recipe:
        values: dict[str, dict[str, Any]] = {
            "model": {
                "base": str(models[name]),
                "weights": "pretrained",
                "micro_batch_size": MICRO,
                "global_batch_size": MICRO,
                "precision": "fp32",
            },
            "data": {"kind": "folder", "path": str(pictures), "num_workers": 0},
            "trainer": {"max_steps": 2},
            "checkpoint": {"folder": str(tmp_path / "run")},
        }
        merged = {part: {**values.get(part, {}), **parts.get(part, {})} for part in {*values, *parts}}
        return Recipe.parse({"name": "small", **merged})

    return make


@pytest.fixture
def recipe_file(recipe_of: Recipes, tmp_path: Path) -> Path:
    """The same recipe as a file to name on the command line."""
    file = tmp_path / "small.yaml"
    file.write_text(recipe_of().model_dump_json())
    return file
