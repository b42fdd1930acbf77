"""A small set of real artwork, and a recogniser that learned it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calotype.bench.quality.artwork import EmojiSet
from calotype.bench.quality.learning import Lesson
from calotype.bench.quality.recogniser import Recogniser
from calotype.bench.quality.schooling import Schooling, school
from calotype.emoji.account import Built
from calotype.models.weights import RandomWeights
from calotype.models.write import write_folder
from tests.shrunk import shrunk
from tests.unit.cli.conftest import calotype
from tests.unit.emoji.conftest import built, ingredients, tarballs

__all__ = ["built", "calotype", "ingredients", "tarballs"]

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def real(built: Built) -> EmojiSet:
    return EmojiSet(built.folder)


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the taught recogniser's files are."""
    return tmp_path_factory.mktemp("recogniser") / "taught.safetensors"


@pytest.fixture(scope="session")
def taught(real: EmojiSet, weights: Path) -> Recogniser:
    return school(real, Schooling(weights, "taught by a test", Lesson(epochs=5, batch_size=32), CPU))


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory, real: EmojiSet) -> Path:
    """A folder with a narrow random model that makes pictures of the set's size."""
    narrow = shrunk("emoji")
    unet = {**narrow.unet, "sample_size": real.side // narrow.vae_factor}
    folder = tmp_path_factory.mktemp("models") / "narrow"
    write_folder(RandomWeights(replace(narrow, native_size=real.side, unet=unet)), folder)
    return folder
