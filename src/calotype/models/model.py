"""A live model: its parts as modules on a device, ready to be run. Knows nothing of files."""

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
    """Modules and tokenizers of one model."""

    architecture: Architecture
    identity: ModelIdentity
    unet: Any
    vae: Any
    text_encoders: list[Any]
    tokenizers: list[Any]
    dtype: torch.dtype
    device: torch.device
    vae_sha256: str | None = None
    """Of a separate autoencoder in the place of the model's own."""
    outlined: bool = False
    """Whether the modules are our outlines of diffusers' and transformers' classes, where we have any, and
    not those classes themselves."""

    def parts(self) -> dict[str, nn.Module]:
        """Part name → module, under the names of `Architecture.parts`."""
        modules = [self.unet, self.vae, *self.text_encoders]
        return dict(zip(self.architecture.parts(), modules, strict=True))

    @property
    def weight_bytes(self) -> int:
        """What the weights of all parts take on the device."""
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
    """Read every tensor into place, one at a time, straight to its device.

    `text_device` is where text encoders go, if not there too. `outlined` spares the seconds that importing
    diffusers and transformers takes, for who does not run their forward passes.
    """
    architecture = weights.architecture
    progress = progress or Silent()
    progress.start("loading", sum(len(architecture.tensor_shapes(part)) for part in architecture.parts()))
    modules = {}
    for part in architecture.parts():
        part_dtype = vae_dtype(architecture, dtype) if part == "vae" else dtype
        place = text_device or device if part.startswith("text_encoder") else device
        modules[part] = load_part(
            weights,
            part,
            source=identity.reference,
            dtype=part_dtype,
            device=place,
            progress=progress,
            outlined=outlined,
        )
    unet, vae = modules.pop("unet"), modules.pop("vae")
    make = FastTokenizer if outlined else build_tokenizer
    return Model(
        architecture=architecture,
        identity=identity,
        unet=unet,
        vae=vae,
        text_encoders=list(modules.values()),
        tokenizers=[
            _tokenizer(make, description, encoder, identity.reference)
            for description, encoder in zip(architecture.tokenizers, modules.values(), strict=True)
        ],
        dtype=dtype,
        device=device,
        outlined=outlined,
    )


def _tokenizer(
    make: Callable[[Mapping[str, Any]], Any], description: Mapping[str, Any], encoder: Any, source: str
) -> Any:
    try:
        tokenizer = make(description)
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise ModelFileError(source, f"its tokenizer cannot be built: {error}") from error
    tokens, known = tokenizer.backend_tokenizer.get_vocab_size(), encoder.config.vocab_size
    if tokens > known:
        rule = f"its tokenizer has {tokens} tokens, its text encoder knows {known} of them"
        raise ModelFileError(source, rule)
    return tokenizer


def vae_dtype(architecture: Architecture, dtype: torch.dtype) -> torch.dtype:
    """SDXL's autoencoder overflows in fp16: it gets fp32 unless its configuration says it need not."""
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
    """One module with its weights; refuses weights that are not finite numbers, by name.

    `outlined` as in `Model`.
    """
    make = weights.architecture.outline if outlined else weights.architecture.build
    module = make(part)
    state, extremes = {}, {}
    for name, spec in weights.specs(part).items():
        if not spec.dtype.is_floating_point:
            rule = f"{name!r} of its {part} is {spec.dtype}; quantized files cannot be loaded"
            raise ModelFileError(source, rule)
    for name, read in in_order(weights, part):
        tensor = read.to(device, dtype)
        state[module_name(name, module)] = tensor
        # Neither is a number where any is not; a fortieth of the time of asking each.
        extremes[name] = tensor.aminmax()
        progress.advance()
    _refuse_non_finite(source, part, extremes)
    module.load_state_dict(state, strict=True, assign=True)
    _fill_buffers(module, device)
    return module.requires_grad_(False).eval()


def _refuse_non_finite(source: str, part: str, extremes: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    # One look at the device for all tensors, not one for each.
    both = torch.stack([each for pair in extremes.values() for each in pair])
    verdicts = both.isfinite().unflatten(0, (-1, 2)).all(1).tolist()
    bad = [name for name, verdict in zip(extremes, verdicts, strict=True) if not verdict]
    if bad:
        rule = f"{len(bad)} tensors of its {part} hold NaN or infinity, the first is {bad[0]!r}"
        consequence = "every picture would be black (too narrow a dtype can cause it)"
        raise ModelFileError(source, f"{rule}; {consequence}")


def _fill_buffers(module: nn.Module, device: torch.device) -> None:
    """Buffers that are in no file: modules built on the meta device have them without contents."""
    for submodule in module.modules():
        for name, buffer in list(submodule.named_buffers(recurse=False)):
            if not buffer.is_meta:
                continue
            if name != "position_ids":
                raise NotImplementedError(f"nobody fills the buffer {name!r} of {type(submodule).__name__}")
            positions = torch.arange(buffer.shape[-1], device=device).expand(buffer.shape)
            submodule.register_buffer(name, positions, persistent=False)
