"""The emoji classifier: a network trained on the artwork with the names of its classes, and its files.

The record WEIGHTS.json lies beside WEIGHTS.safetensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from calotype.bench.quality.classifier_model import SIDE, ClassifierNet
from calotype.bench.quality.classifier_train import as_floats
from calotype.bench.quality.dataset import EmojiSet
from calotype.core.errors import ModelFileError, Problem, RequestError
from calotype.core.paths import atomic_write
from calotype.models.files.safetensors_reader import open_safetensors
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.json_file import read_text_file
from calotype.spec.records.quality import ClassifierRecord

_AT_A_TIME = 256


@dataclass(frozen=True)
class ClassifierOutput:
    """The classifier's output for each image."""

    emoji: Tensor
    """Probabilities, one column per emoji."""
    style: Tensor
    """Probabilities, one column per style."""


class Classifier:
    """Classifies the emoji and the style of an image."""

    def __init__(self, network: ClassifierNet, record: ClassifierRecord, device: torch.device) -> None:
        self.record = record
        self.emoji, self.styles = list(record.emoji), list(record.styles)
        self._network = network.to(device).eval().requires_grad_(False)
        self._device = device
        self._leaders = {base: group[0] for group in record.twins for base in group}
        self._numbers = {base: number for number, base in enumerate(self.emoji)}

    def number_of(self, base: str) -> int:
        """Return the column of an emoji."""
        return self._numbers[self._leaders.get(base, base)]

    @torch.inference_mode()
    def classify(self, pixels: Tensor) -> ClassifierOutput:
        """Classify images of any size as (number, 3, height, width) in uint8."""
        emoji, style = [], []
        for some in pixels.split(_AT_A_TIME):
            of_emoji, of_style = self._network(self._small(some))
            emoji.append(of_emoji.softmax(1).cpu())
            style.append(of_style.softmax(1).cpu())
        return ClassifierOutput(torch.cat(emoji), torch.cat(style))

    @torch.inference_mode()
    def feature_distances(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the feature distances of image pairs of any size, (number, layers), from 0 (equal) to 2.

        It has the form of LPIPS (Zhang et al. 2018) without its learned weights: the squared distance of the
        two features scaled to length 1, averaged over the positions of a layer.
        """
        pairs = zip(one.split(_AT_A_TIME), other.split(_AT_A_TIME), strict=True)
        return torch.cat([self._distances(a, b).cpu() for a, b in pairs])

    def _distances(self, one: Tensor, other: Tensor) -> Tensor:
        seen = (self._network.features(self._small(pixels)) for pixels in (one, other))
        layers = [normalize(a, dim=1) - normalize(b, dim=1) for a, b in zip(*seen, strict=True)]
        return torch.stack([layer.square().sum(1).mean((1, 2)) for layer in layers], dim=1)

    def _small(self, pixels: Tensor) -> Tensor:
        return interpolate(as_floats(pixels.to(self._device)), (SIDE, SIDE), mode="area")

    def check_made_for(self, data: EmojiSet) -> None:
        """Raise an error for artwork that the classifier was not trained on."""
        if self.record.artwork_sha256 != data.artwork_sha256:
            ours, theirs = self.record.artwork_sha256[:12], data.artwork_sha256[:12]
            rule = (
                f"was trained on artwork {ours}…, but {data.folder} contains artwork {theirs}…; "
                f"train one for it with `calotype bench recogniser {data.folder} OUT.safetensors`"
            )
            raise RequestError([Problem("recogniser", rule)])


def shipped() -> Path:
    """Return the path of the shipped weights."""
    return Path(str(files("calotype.resources.assets"))) / "emoji_recogniser" / "recogniser.safetensors"


def write_weights(path: Path, network: ClassifierNet) -> str:
    """Write a network in half precision; returns the file's sha256."""
    tensors = {
        name: value.half() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    declared = {name: (value.dtype, tuple(value.shape)) for name, value in tensors.items()}
    write_safetensors(path, declared, tensors.__getitem__)
    with open_safetensors(path) as written:
        return written.sha256()


def write_record(path: Path, record: ClassifierRecord) -> None:
    """Return the path of the record of the weights at `path`."""
    with atomic_write(path.with_suffix(".json"), "w") as file:
        file.write(record.model_dump_json(indent=1) + "\n")


def read_classifier(path: Path, device: torch.device) -> Classifier:
    """Load the classifier with the weights at `path`."""
    beside = path.with_suffix(".json")
    with open_safetensors(path) as file:
        try:
            record = ClassifierRecord.model_validate_json(read_text_file(beside))
        except ValidationError as error:
            rule = (
                f"is not the record of a recogniser: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}"
            )
            raise ModelFileError(beside, rule) from None
        if file.sha256() != record.weights_sha256:
            raise ModelFileError(path, f"is not the file that {beside.name} describes; train both again")
        state = {name: file.read(name) for name in file}
    network = ClassifierNet(len(record.emoji), len(record.styles))
    network.load_state_dict(state)
    return Classifier(network, record, device)
