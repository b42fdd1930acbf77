"""Train a LoRA: low-rank updates beside frozen layers, exported in the user's choice of key format.

The layers come from peft; the files are written here, in the formats that `calotype.models.lora` reads.
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
    """The frozen model with trainable low-rank updates in the layers that the recipe names.

    The layers are in the UNet and, if the recipe says so, in the attention of the text encoders.
    """

    def __init__(self, model: Model, recipe: Recipe) -> None:
        super().__init__(model, recipe)
        model.unet.requires_grad_(False)
        self._alpha = alpha_of(recipe.lora)
        self._encoders: dict[str, Any] = {}
        if recipe.lora.text_encoder:
            self._encoders = encoders_by_part(model)
        # peft initializes from torch's global generators; inside this context the run's seed sets them.
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            torch.manual_seed(recipe.trainer.seed)
            self._adapt_unet()
            for encoder in self._encoders.values():
                encoder.add_adapter(self._settings(TEXT_TARGETS, layers_read(encoder, model)))
        self._prompted = UNetWithText(model, nn.ModuleList([model.unet, *self._encoders.values()]))
        for parameter in self.parameters().values():
            # The values and their updates are small: half precision would lose the updates.
            parameter.data = parameter.data.float()

    def _adapt_unet(self) -> None:
        from peft import NoMatchingPeftModuleError  # noqa: PLC0415 - a second to import

        targets = self._recipe.lora.targets
        try:
            self.model.unet.add_adapter(self._settings(targets))
        except NoMatchingPeftModuleError as error:
            raise _refused(targets, "no layer name ends with it") from error
        except ValueError as error:
            rule = (
                "it names a layer that is neither linear nor a convolution, and only these can have updates"
            )
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

    def _predict(
        self, loss_input: LossInput, batch: Batch, draws: SampleNoise
    ) -> Callable[[nn.Module], Tensor]:
        if not self._encoders:
            return super()._predict(loss_input, batch, draws)
        return predict_from_captions(self.model, loss_input, batch, draws, batch.captions)

    def export(
        self, file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = NO_METADATA
    ) -> None:
        """Write the updates; `tensors` holds the parameters by name, or their averages."""
        write_lora(file, tensors, self._alpha, self._recipe.lora.dialect, metadata)


def _refused(targets: Sequence[str], rule: str) -> RequestError:
    usual = ",".join(LoraConfig().targets)
    return RequestError(
        [Problem("lora.targets", f"{list(targets)}: {rule}; the usual are [{usual}]", tuple(targets))]
    )


def alpha_of(part: LoraConfig) -> float:
    """The rank if the recipe sets none: the updates then have scale one."""
    return part.alpha or float(part.rank)


def write_lora(
    file: Path,
    tensors: Mapping[str, Tensor],
    alpha: float,
    dialect: str,
    metadata: Mapping[str, str] = NO_METADATA,
) -> None:
    """Write peft's parameters under a format's key names, with alpha where that format stores it."""
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
    """The part, the layer (as in published files) and the matrix that a parameter name refers to."""
    first, _, rest = name.partition(".")
    part, inside = (first, rest) if first.startswith("text_encoder") else ("unet", name)
    layer, _, ending = inside.partition(".lora_")
    return part, published_name(layer, part), ending.partition(".")[0]


def _kohya_prefixes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The key prefixes of each part; text encoders are numbered if there are two."""
    two = any(name.startswith("text_encoder_2.") for name in tensors)
    return {
        "unet": "lora_unet_",
        "text_encoder": "lora_te1_" if two else "lora_te_",
        "text_encoder_2": "lora_te2_",
    }


def _note(layers: Mapping[str, set[str]], rank: int, alpha: float) -> dict[str, Any]:
    """The adapter metadata that diffusers expects for each part."""
    note: dict[str, Any] = {}
    for part, names in layers.items():
        # Newer text encoders lack this level; suffixes of names are sufficient.
        targets = sorted(name.removeprefix("text_model.") for name in names)
        note |= {f"{part}.r": rank, f"{part}.lora_alpha": alpha, f"{part}.target_modules": targets}
    return note
