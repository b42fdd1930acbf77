"""Training a LoRA: small updates beside frozen layers, written in the dialect the user's other programs read.

The layers are peft's; the files are ours to write, in the forms `calotype.models.lora` reads. Knows nothing
of the loop.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calotype.core.errors import Problem, RequestError
from calotype.models.architecture import published_name
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.spec.recipe_sections import LoraConfig
from calotype.train.data.types import Batch
from calotype.train.loss import LossInput
from calotype.train.rng import SampleNoise
from calotype.train.tasks.base import UNetTask
from calotype.train.tasks.unet_with_text import (
    UNetWithText,
    encoders_by_part,
    layers_read,
    moving_parameters,
    predict_from_captions,
)

NO_METADATA: Mapping[str, str] = {}
TEXT_TARGETS = ("q_proj", "k_proj", "v_proj", "out_proj")


class LoraTask(UNetTask):
    """The model frozen, with trainable low-rank updates in the layers the recipe names.

    They are the UNet's and, if the recipe says so, those of the text encoders' attention.
    """

    def __init__(self, model: Model, recipe: Recipe) -> None:
        super().__init__(model, recipe)
        model.unet.requires_grad_(False)
        self._alpha = alpha_of(recipe.lora)
        self._encoders: dict[str, Any] = {}
        if recipe.lora.text_encoder:
            self._encoders = encoders_by_part(model)
        # peft draws its first numbers from torch's global generators; the run's seed decides them, here only.
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            torch.manual_seed(recipe.trainer.seed)
            self._adapt_unet()
            for encoder in self._encoders.values():
                encoder.add_adapter(self._settings(TEXT_TARGETS, layers_read(encoder, model)))
        self._prompted = UNetWithText(model, nn.ModuleList([model.unet, *self._encoders.values()]))
        for parameter in self.parameters().values():
            # Small numbers with small steps: half precision would lose the updates.
            parameter.data = parameter.data.float()

    def _adapt_unet(self) -> None:
        from peft import NoMatchingPeftModuleError  # noqa: PLC0415 - a second to import

        targets = self._recipe.lora.targets
        try:
            self.model.unet.add_adapter(self._settings(targets))
        except NoMatchingPeftModuleError as error:
            raise _refused(targets, "no layer's name ends so") from error
        except ValueError as error:
            rule = "a layer is named so that is neither linear nor a convolution, and only these take updates"
            raise _refused(targets, rule) from error

    def _settings(self, targets: Sequence[str], layers: Sequence[int] | None = None) -> Any:
        from peft import LoraConfig as PeftLoraConfig  # noqa: PLC0415 - a second to import

        return PeftLoraConfig(
            r=self._recipe.lora.rank,
            lora_alpha=self._alpha,
            target_modules=list(targets),
            layers_to_transform=None if layers is None else list(layers),
            init_lora_weights="gaussian",
        )

    @property
    def network(self) -> nn.Module:
        return self._prompted if self._encoders else super().network

    def parameters(self) -> dict[str, nn.Parameter]:
        return moving_parameters(self.model, self._encoders)

    def _predict(self, loss_input: LossInput, batch: Batch, draws: SampleNoise) -> Callable[[nn.Module], Tensor]:
        if not self._encoders:
            return super()._predict(loss_input, batch, draws)
        return predict_from_captions(self.model, loss_input, batch, draws, batch.captions)

    def export(
        self, file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = NO_METADATA
    ) -> None:
        """Write the updates; `tensors` are the parameters by name, or their averages."""
        write_lora(file, tensors, self._alpha, self._recipe.lora.dialect, metadata)


def _refused(targets: Sequence[str], rule: str) -> RequestError:
    usual = ",".join(LoraConfig().targets)
    return RequestError(
        [Problem("lora.targets", f"{list(targets)}: {rule}; the usual are [{usual}]", tuple(targets))]
    )


def alpha_of(part: LoraConfig) -> float:
    """The rank's where the recipe says none: updates then count as they are."""
    return part.alpha or float(part.rank)


def write_lora(
    file: Path,
    tensors: Mapping[str, Tensor],
    alpha: float,
    dialect: str,
    metadata: Mapping[str, str] = NO_METADATA,
) -> None:
    """peft's parameter names in a dialect's own, with alpha where that dialect keeps it."""
    named: dict[str, Tensor] = {}
    layers: dict[str, set[str]] = defaultdict(set)
    flat_prefixes = _kohya_prefixes(tensors)
    for name, tensor in tensors.items():
        part, layer, kind = _place(name)
        layers[part].add(layer)
        value = tensor.detach().cpu().float().contiguous()
        if dialect == "diffusers":
            named[f"{part}.{layer}.lora_{kind}.weight"] = value
        else:
            flat = f"{flat_prefixes[part]}{layer.replace('.', '_')}"
            named[f"{flat}.lora_{'down' if kind == 'A' else 'up'}.weight"] = value
            named[f"{flat}.alpha"] = torch.tensor(alpha)
    header = {"format": "pt", **metadata}
    if dialect == "diffusers":
        rank = next(t.shape[0] for n, t in named.items() if ".lora_A." in n)
        header["lora_adapter_metadata"] = json.dumps(_note(layers, rank, alpha))
    specs = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in named.items()}
    write_safetensors(file, specs, named.__getitem__, header)


def _place(name: str) -> tuple[str, str, str]:
    """The part and layer (as published files name them) and the matrix that a parameter's name means."""
    said, _, rest = name.partition(".")
    part, inside = (said, rest) if said.startswith("text_encoder") else ("unet", name)
    layer, _, ending = inside.partition(".lora_")
    return part, published_name(layer, part), ending.partition(".")[0]


def _kohya_prefixes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Text encoders are numbered where there are two."""
    two = any(name.startswith("text_encoder_2.") for name in tensors)
    return {
        "unet": "lora_unet_",
        "text_encoder": "lora_te1_" if two else "lora_te_",
        "text_encoder_2": "lora_te2_",
    }


def _note(layers: Mapping[str, set[str]], rank: int, alpha: float) -> dict[str, Any]:
    """What diffusers wants to be told of each part."""
    note: dict[str, Any] = {}
    for part, names in layers.items():
        # Without the level that newer versions of the encoders lack; ends of names are enough.
        targets = sorted(name.removeprefix("text_model.") for name in names)
        note |= {f"{part}.r": rank, f"{part}.lora_alpha": alpha, f"{part}.target_modules": targets}
    return note
