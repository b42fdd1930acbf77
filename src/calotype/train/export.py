"""What a run has learned, as files other programs read: a model, a LoRA or a word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import NotFoundError, Problem, RequestError
from calotype.engine.device import choose_dtype
from calotype.models.architecture import Architecture, published_name
from calotype.models.model import Model
from calotype.models.weights import NamedTensors, TensorSpec
from calotype.models.write import SINGLE_FILE_SUFFIXES, refuse_existing, write_folder, write_single_file
from calotype.spec.recipe import Recipe
from calotype.train.checkpoint import CheckpointStore
from calotype.train.inversion import InversionSubject
from calotype.train.live import build_subject, load_model
from calotype.train.lora import LoraSubject
from calotype.train.run import run_folder


class LiveWeights:
    """The tensors of a live model, with some replaced."""

    def __init__(self, model: Model, unet: Mapping[str, Tensor]) -> None:
        self.architecture: Architecture = model.architecture
        self._states: dict[str, dict[str, Tensor]] = {
            part: {published_name(name, part): tensor for name, tensor in module.state_dict().items()}
            for part, module in model.parts().items()
        }
        self._states["unet"] |= unet

    def specs(self, part: str) -> Mapping[str, TensorSpec]:
        return {name: TensorSpec(t.dtype, tuple(t.shape)) for name, t in self._states[part].items()}

    def read(self, part: str, name: str) -> Tensor:
        return self._states[part][name].cpu()

    def extra(self) -> NamedTensors | None:
        return None


def export(
    recipe: Recipe,
    destination: Path,
    *,
    dtype: str = "fp16",
    live: bool = False,
    best: bool = False,
    models: Path | None = None,
) -> int:
    """Write the newest (or best) checkpoint's averaged (or live) weights; the answer is its step."""
    refuse_existing(destination)
    if recipe.model.train != "unet" and destination.suffix != ".safetensors":
        rule = f"{destination} should end in .safetensors: what a {recipe.model.train} run makes is one file"
        raise RequestError([Problem("destination", rule, str(destination))])
    with CheckpointStore(run_folder(recipe) / "checkpoints", recipe.checkpoint.keep_last) as store:
        path = store.best() if best else store.newest()
        if path is None:
            which = "no checkpoint with a metric" if best else "no checkpoint"
            raise NotFoundError(f"{which} in {run_folder(recipe)}; run the recipe first")
        state, _ = store.load(path, 0)
    names = sorted(state["parameters"])
    tensors = dict(state["parameters"])
    if state["ema"] and not live:
        tensors = dict(zip(names, state["ema"]["averages"], strict=True))
    # The parts that were not trained leave as they came, not rounded to what the run computed in.
    whole = recipe.model.model_copy(update={"precision": "fp32", "low_precision_weights": False})
    model = load_model(recipe.model_copy(update={"model": whole}), torch.device("cpu"), models=models)
    subject = build_subject(model, recipe)
    if isinstance(subject, LoraSubject | InversionSubject):
        subject.export(destination, tensors)
    else:
        write = write_single_file if destination.suffix in SINGLE_FILE_SUFFIXES else write_folder
        write(LiveWeights(model, tensors), destination, dtype=choose_dtype(dtype, torch.device("cpu")))
    return int(state["step"])
