"""Training a LoRA: small updates beside frozen layers, written in the dialect the user's other programs read.

The layers are peft's; the files are ours to write, in the forms `calotype.models.lora` reads. Knows nothing
of the loop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from calotype.core.errors import Problem, RequestError
from calotype.models.files.safetensors_writer import write_safetensors
from calotype.models.model import Model
from calotype.spec.recipe import Recipe
from calotype.train.subject import UnetSubject


class LoraSubject(UnetSubject):
    """The UNet frozen, with trainable low-rank updates in the layers the recipe names."""

    def __init__(self, model: Model, recipe: Recipe) -> None:
        from peft import LoraConfig  # noqa: PLC0415 - a second to import

        if recipe.lora.text_encoder:
            rule = "the text encoders' layers cannot be trained yet; leave it out to train the UNet's"
            raise RequestError([Problem("lora.text_encoder", rule)])
        super().__init__(model, recipe)
        model.unet.requires_grad_(False)
        self._alpha = recipe.lora.alpha or float(recipe.lora.rank)
        settings = LoraConfig(
            r=recipe.lora.rank,
            lora_alpha=self._alpha,
            target_modules=list(recipe.lora.targets),
            init_lora_weights="gaussian",
        )
        # peft draws its first numbers from torch's global generators; the run's seed decides them, here only.
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            torch.manual_seed(recipe.trainer.seed)
            model.unet.add_adapter(settings)
        for parameter in self.parameters().values():
            # Small numbers with small steps: half precision would lose the updates.
            parameter.data = parameter.data.float()

    def export(self, file: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write the updates; `tensors` are the parameters by name, or their averages."""
        write_lora(file, tensors, self._alpha, self._recipe.lora.dialect)


def write_lora(file: Path, tensors: Mapping[str, Tensor], alpha: float, dialect: str) -> None:
    """peft's parameter names in a dialect's own, with alpha where that dialect keeps it."""
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, rest = name.partition(".lora_")
        kind = rest.partition(".")[0]
        value = tensor.detach().cpu().float().contiguous()
        if dialect == "diffusers":
            named[f"unet.{layer}.lora_{kind}.weight"] = value
        else:
            flat = f"lora_unet_{layer.replace('.', '_')}"
            named[f"{flat}.lora_{'down' if kind == 'A' else 'up'}.weight"] = value
            named[f"{flat}.alpha"] = torch.tensor(alpha)
    metadata = {"format": "pt"}
    if dialect == "diffusers":
        rank = next(t.shape[0] for n, t in named.items() if ".lora_A." in n)
        targets = sorted({n.removeprefix("unet.").partition(".lora_")[0] for n in named})
        settings = {"unet.r": rank, "unet.lora_alpha": alpha, "unet.target_modules": targets}
        metadata["lora_adapter_metadata"] = json.dumps(settings)
    specs = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in named.items()}
    write_safetensors(file, specs, named.__getitem__, metadata)
