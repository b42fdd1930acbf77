"""A small set of real artwork, and a recogniser that learned it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calotype.bench.quality.classifier import Classifier
from calotype.bench.quality.classifier_build import ClassifierTraining, train_classifier
from calotype.bench.quality.classifier_train import TrainingBatch
from calotype.bench.quality.dataset import EmojiSet
from calotype.datasets.emoji.manifest import Built
from calotype.models.save import write_folder
from calotype.models.weights import RandomWeights
from tests.small_models import shrunk
from tests.unit.cli.conftest import calotype
from tests.unit.datasets.emoji.conftest import built, ingredients, tarballs

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
def taught(real: EmojiSet, weights: Path) -> Classifier:
    return train_classifier(
        real, ClassifierTraining(weights, "taught by a test", TrainingBatch(epochs=5, batch_size=32), CPU)
    )


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory, real: EmojiSet) -> Path:
    """A folder with a narrow random model that makes pictures of the set's size."""
    narrow = shrunk("emoji")
    unet = {**narrow.unet, "sample_size": real.side // narrow.vae_factor}
    folder = tmp_path_factory.mktemp("models") / "narrow"
    write_folder(RandomWeights(replace(narrow, native_size=real.side, unet=unet)), folder)
    return folder
