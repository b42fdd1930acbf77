"""A live model: its parts as modules on a device, ready to be run. Knows nothing of where the weights came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calotype.core.errors import ModelFileError
from calotype.core.progress import Progress, Silent
from calotype.models.architecture import Architecture, module_name
from calotype.models.tokenizer import build_tokenizer
from calotype.models.weights import Weights
from calotype.spec.record import ModelIdentity


@dataclass
class Model:
    """Modules and tokenizers of one model. The modules are diffusers' and transformers' own classes."""

    architecture: Architecture
    identity: ModelIdentity
    unet: Any
    vae: Any
    text_encoders: list[Any]
    tokenizers: list[Any]
    dtype: torch.dtype
    device: torch.device

    def parts(self) -> dict[str, nn.Module]:
        """Part name → module, under the names of `Architecture.parts`."""
        modules = [self.unet, self.vae, *self.text_encoders]
        return dict(zip(self.architecture.parts(), modules, strict=True))

    @property
    def weight_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for module in self.parts().values() for p in module.parameters())


def assemble(
    weights: Weights,
    identity: ModelIdentity,
    *,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress | None = None,
) -> Model:
    """Read every tensor into place, one at a time, straight to its device."""
    architecture = weights.architecture
    progress = progress or Silent()
    progress.start("loading", sum(len(architecture.tensor_shapes(part)) for part in architecture.parts()))
    modules = {}
    for part in architecture.parts():
        part_dtype = vae_dtype(architecture, dtype) if part == "vae" else dtype
        modules[part] = load_part(weights, part, part_dtype, device, identity.reference, progress)
    return Model(
        architecture=architecture,
        identity=identity,
        unet=modules.pop("unet"),
        vae=modules.pop("vae"),
        text_encoders=list(modules.values()),
        tokenizers=[build_tokenizer(description) for description in architecture.tokenizers],
        dtype=dtype,
        device=device,
    )


def vae_dtype(architecture: Architecture, dtype: torch.dtype) -> torch.dtype:
    """SDXL's autoencoder overflows in fp16, so it runs in fp32 there unless its configuration says it need not."""
    overflows = architecture.family == "sdxl" and architecture.vae.get("force_upcast", True)
    return torch.float32 if overflows and dtype == torch.float16 else dtype


def load_part(
    weights: Weights, part: str, dtype: torch.dtype, device: torch.device, source: str, progress: Progress
) -> nn.Module:
    """One module with its weights; refuses weights that are not finite, by name."""
    module = weights.architecture.build(part)
    state, finite = {}, {}
    for name in weights.specs(part):
        tensor = weights.read(part, name).to(device, dtype)
        state[module_name(name, module)] = tensor
        finite[name] = torch.isfinite(tensor).all()
        progress.advance()
    _refuse_non_finite(source, part, finite)
    module.load_state_dict(state, strict=True, assign=True)
    _fill_buffers(module, device)
    return module.requires_grad_(False).eval()


def _refuse_non_finite(source: str, part: str, finite: dict[str, Tensor]) -> None:
    # One look at the device for all tensors, not one for each.
    verdicts = torch.stack(list(finite.values())).tolist()
    bad = [name for name, verdict in zip(finite, verdicts, strict=True) if not verdict]
    if bad:
        rule = f"{len(bad)} tensors of its {part} hold NaN or infinity, the first is {bad[0]!r}"
        raise ModelFileError(source, f"{rule}; every picture would be black (too narrow a dtype can cause it)")


def _fill_buffers(module: nn.Module, device: torch.device) -> None:
    """Buffers that are in no file: modules built on the meta device have them without contents."""
    for submodule in module.modules():
        for name, buffer in list(submodule.named_buffers(recurse=False)):
            if buffer.is_meta:
                assert name == "position_ids", f"a buffer nobody fills: {name}"
                positions = torch.arange(buffer.shape[-1], device=device).expand(buffer.shape)
                submodule.register_buffer(name, positions, persistent=False)
