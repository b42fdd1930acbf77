"""Loads a model: builds the module of each part on a device and fills it with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calotype.core.errors import ModelFileError
from calotype.core.progress import Progress, Silent
from calotype.models.architecture import Architecture, module_name
from calotype.models.fast_tokenizer import FastTokenizer
from calotype.models.tokenizer import build_tokenizer
from calotype.models.weights import Weights, in_order
from calotype.spec.records.image import ModelIdentity


@dataclass
class Model:
    """The modules and tokenizers of one model."""

    architecture: Architecture
    identity: ModelIdentity
    unet: Any
    vae: Any
    text_encoders: list[Any]
    tokenizers: list[Any]
    dtype: torch.dtype
    device: torch.device
    vae_sha256: str | None = None
    """Hash of a separate VAE that replaces the model's own."""
    outlined: bool = False
    """Whether the modules are our skeletons of diffusers' and transformers' classes, where we have them,
    instead of those classes."""

    def parts(self) -> dict[str, nn.Module]:
        """Part name → module, under the names of `Architecture.parts`."""
        modules = [self.unet, self.vae, *self.text_encoders]
        return dict(zip(self.architecture.parts(), modules, strict=True))

    @property
    def weight_bytes(self) -> int:
        """Device memory, in bytes, of the weights of all parts."""
        parameters = (p for module in self.parts().values() for p in module.parameters())
        return sum(p.numel() * p.element_size() for p in parameters)


def load_model(
    weights: Weights,
    identity: ModelIdentity,
    *,
    dtype: torch.dtype,
    device: torch.device,
    text_device: torch.device | None = None,
    outlined: bool = False,
    progress: Progress | None = None,
) -> Model:
    """Build every part and read its tensors one at a time, straight to their device.

    `text_device` is the device of the text encoders if it differs from `device`. `outlined` builds skeletons,
    which saves the seconds of importing diffusers and transformers where their forward passes do not run.
    """
    architecture = weights.architecture
    progress = progress or Silent()
    progress.start("loading", sum(len(architecture.tensor_shapes(part)) for part in architecture.parts()))
    modules = {}
    for part in architecture.parts():
        part_dtype = vae_dtype(architecture, dtype) if part == "vae" else dtype
        part_device = text_device or device if part.startswith("text_encoder") else device
        modules[part] = load_part(
            weights,
            part,
            source=identity.reference,
            dtype=part_dtype,
            device=part_device,
            progress=progress,
            outlined=outlined,
        )
    unet, vae = modules.pop("unet"), modules.pop("vae")
    tokenizer_factory = FastTokenizer if outlined else build_tokenizer
    return Model(
        architecture=architecture,
        identity=identity,
        unet=unet,
        vae=vae,
        text_encoders=list(modules.values()),
        tokenizers=[
            _build_tokenizer(tokenizer_factory, description, encoder, identity.reference)
            for description, encoder in zip(architecture.tokenizers, modules.values(), strict=True)
        ],
        dtype=dtype,
        device=device,
        outlined=outlined,
    )


def _build_tokenizer(
    factory: Callable[[Mapping[str, Any]], Any], description: Mapping[str, Any], encoder: Any, source: str
) -> Any:
    try:
        tokenizer = factory(description)
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise ModelFileError(source, f"its tokenizer cannot be built: {error}") from error
    tokens, embeddings = tokenizer.backend_tokenizer.get_vocab_size(), encoder.config.vocab_size
    if tokens > embeddings:
        rule = f"its tokenizer has {tokens} tokens, its text encoder embeds only {embeddings}"
        raise ModelFileError(source, rule)
    return tokenizer


def vae_dtype(architecture: Architecture, dtype: torch.dtype) -> torch.dtype:
    """The VAE's dtype: SDXL's overflows in fp16 and gets fp32, unless its configuration rules that out."""
    overflows = architecture.family == "sdxl" and architecture.vae.get("force_upcast", True)
    return torch.float32 if overflows and dtype == torch.float16 else dtype


def load_part(
    weights: Weights,
    part: str,
    *,
    source: str,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress,
    outlined: bool = False,
) -> nn.Module:
    """Build one part with its weights; raise ModelFileError naming the tensors that hold NaN or infinity.

    `outlined` means the same as in `Model`.
    """
    build = weights.architecture.outline if outlined else weights.architecture.build
    module = build(part)
    state, extremes = {}, {}
    for name, spec in weights.specs(part).items():
        if not spec.dtype.is_floating_point:
            rule = f"{name!r} of its {part} is {spec.dtype}; quantized files cannot be loaded"
            raise ModelFileError(source, rule)
    for name, stored in in_order(weights, part):
        tensor = stored.to(device, dtype)
        state[module_name(name, module)] = tensor
        # If any element is NaN or infinite, so is the minimum or maximum; this takes a fortieth of the time
        # of `isfinite` on every element.
        extremes[name] = tensor.aminmax()
        progress.advance()
    _refuse_non_finite(source, part, extremes)
    module.load_state_dict(state, strict=True, assign=True)
    _fill_buffers(module, device)
    return module.requires_grad_(False).eval()


def _refuse_non_finite(source: str, part: str, extremes: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    # One device synchronization for all tensors instead of one for each.
    stacked = torch.stack([extreme for pair in extremes.values() for extreme in pair])
    all_finite = stacked.isfinite().unflatten(0, (-1, 2)).all(1).tolist()
    bad = [name for name, finite in zip(extremes, all_finite, strict=True) if not finite]
    if bad:
        rule = f"{len(bad)} tensors of its {part} hold NaN or infinity, the first is {bad[0]!r}"
        consequence = "every image would be black (a dtype that is too narrow can cause this)"
        raise ModelFileError(source, f"{rule}; {consequence}")


def _fill_buffers(module: nn.Module, device: torch.device) -> None:
    """Fill the buffers that no file holds: modules built on the meta device have them without contents."""
    for submodule in module.modules():
        for name, buffer in list(submodule.named_buffers(recurse=False)):
            if not buffer.is_meta:
                continue
            if name != "position_ids":
                raise NotImplementedError(f"no code fills the buffer {name!r} of {type(submodule).__name__}")
            positions = torch.arange(buffer.shape[-1], device=device).expand(buffer.shape)
            submodule.register_buffer(name, positions, persistent=False)
