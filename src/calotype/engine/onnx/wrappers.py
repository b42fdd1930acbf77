"""Wraps each part of a model as a module with plain tensors under fixed names as inputs and outputs.

Names of folders, inputs, outputs and axes are those of optimum's ONNX pipelines, so that they can run the
folder unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from calotype.models.architecture import Architecture, vae_factor

Axes = Mapping[str, Mapping[int, str]]
"""Input → dimension → name, for every dynamic dimension."""

TIME_IDS = 6
REFINER_TIME_IDS = 5
"""An aesthetic score replaces the target's width and height."""
TIMESTEP = 321.0
_BATCH = {0: "batch_size"}
_TOKENS = {0: "batch_size", 1: "sequence_length"}


class Sizes(NamedTuple):
    """Sizes of example inputs."""

    batch: int
    height: int
    """Of the latent."""
    width: int
    tokens: int


class Part(nn.Module):
    """The contents of one file: a network with named inputs and outputs."""

    axes: ClassVar[Axes]
    outputs: tuple[str, ...]

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.eval()

    def example(self, sizes: Sizes, draw: torch.Generator) -> dict[str, Tensor]:
        """Random inputs, in the precision of the file."""
        raise NotImplementedError

    def _noise(self, draw: torch.Generator, *shape: int) -> Tensor:
        return torch.randn(shape, generator=draw).to(next(self.network.parameters()).dtype)


class TextEncoder(Part):
    """Token ids to hidden states. Outputs every layer's state, for callers that skip the last layers."""

    axes: ClassVar[Axes] = {"input_ids": _TOKENS}

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        self._has_projection = hasattr(network, "text_projection")
        # Pipelines use the first output as the pooled one if there is a projection.
        pooled = (
            ("text_embeds", "last_hidden_state")
            if self._has_projection
            else ("last_hidden_state", "pooler_output")
        )
        layers = range(network.config.num_hidden_layers + 1)
        self.outputs = (*pooled, *(f"hidden_states.{layer}" for layer in layers))

    def example(self, sizes: Sizes, draw: torch.Generator) -> dict[str, Tensor]:
        config = self.network.config
        tokens = min(sizes.tokens, config.max_position_embeddings)
        ids = torch.randint(config.vocab_size, (sizes.batch, tokens), generator=draw)
        # The pooled output is taken at the end token.
        ids[:, -1] = config.eos_token_id
        return {"input_ids": ids}

    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        output = self.network(input_ids=input_ids, output_hidden_states=True)
        if self._has_projection:
            return output.text_embeds, output.last_hidden_state, *output.hidden_states
        return output.last_hidden_state, output.pooler_output, *output.hidden_states


class Unet(Part):
    """A noisy latent to the prediction. All rows share one timestep."""

    outputs = ("out_sample",)
    axes: ClassVar[Axes] = {
        "sample": {0: "batch_size", 2: "height", 3: "width"},
        "timestep": {},
        "encoder_hidden_states": _TOKENS,
    }

    def example(self, sizes: Sizes, draw: torch.Generator) -> dict[str, Tensor]:
        config = self.network.config
        return {
            "sample": self._noise(draw, sizes.batch, config.in_channels, sizes.height, sizes.width),
            # In fp32 for any precision of the model: fp16 represents neither 2049 nor fractional timesteps.
            "timestep": torch.tensor(TIMESTEP),
            "encoder_hidden_states": self._noise(draw, sizes.batch, sizes.tokens, config.cross_attention_dim),
        }

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        return self.network(sample, timestep, encoder_hidden_states, return_dict=False)[0]


class SdxlUnet(Unet):
    """SDXL's UNet also reads the pooled prompt and the size conditioning."""

    axes: ClassVar[Axes] = {**Unet.axes, "text_embeds": _BATCH, "time_ids": _BATCH}
    time_ids: ClassVar[int] = TIME_IDS

    def example(self, sizes: Sizes, draw: torch.Generator) -> dict[str, Tensor]:
        config = self.network.config
        widths = self.time_ids * config.addition_time_embed_dim
        pooled = config.projection_class_embeddings_input_dim - widths
        return {
            **super().example(sizes, draw),
            "text_embeds": self._noise(draw, sizes.batch, pooled),
            "time_ids": torch.randint(2048, (sizes.batch, self.time_ids), generator=draw).float(),
        }

    def forward(  # type: ignore[override]  # a file has no optional inputs
        self,
        sample: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        text_embeds: Tensor,
        time_ids: Tensor,
    ) -> Tensor:
        # They are concatenated with fp32 tensors, and ONNX concatenates only equal types.
        added = {"text_embeds": text_embeds.float(), "time_ids": time_ids}
        return self.network(
            sample, timestep, encoder_hidden_states, added_cond_kwargs=added, return_dict=False
        )[0]


class RefinerUnet(SdxlUnet):
    """The refiner's UNet also reads an aesthetic score."""

    time_ids: ClassVar[int] = REFINER_TIME_IDS


class VaeDecoder(Part):
    """A latent in the VAE's own scale to pixels in about −1…1."""

    outputs = ("sample",)
    axes: ClassVar[Axes] = {"latent_sample": {0: "batch_size", 2: "latent_height", 3: "latent_width"}}

    def example(self, sizes: Sizes, draw: torch.Generator) -> dict[str, Tensor]:
        channels = self.network.config.latent_channels
        return {"latent_sample": self._noise(draw, sizes.batch, channels, sizes.height, sizes.width)}

    def forward(self, latent_sample: Tensor) -> Tensor:
        return self.network.decode(latent_sample, return_dict=False)[0]


class VaeEncoder(Part):
    """Pixels to mean and log variance of the latent, in the VAE's own scale."""

    outputs = ("latent_parameters",)
    axes: ClassVar[Axes] = {"sample": {0: "batch_size", 2: "sample_height", 3: "sample_width"}}

    def example(self, sizes: Sizes, draw: torch.Generator) -> dict[str, Tensor]:
        factor, channels = vae_factor(self.network.config), self.network.config.in_channels
        height, width = sizes.height * factor, sizes.width * factor
        return {"sample": self._noise(draw, sizes.batch, channels, height, width)}

    def forward(self, sample: Tensor) -> Tensor:
        return self.network.encode(sample, return_dict=False)[0].parameters


def kinds(architecture: Architecture) -> dict[str, tuple[str, type[Part]]]:
    """Folder of each file → the part of the model it exports, and its wrapper."""
    encoders = [part for part in architecture.parts() if part.startswith("text_encoder")]
    return {
        **{part: (part, TextEncoder) for part in encoders},
        "unet": ("unet", _unet(architecture)),
        "vae_decoder": ("vae", VaeDecoder),
        "vae_encoder": ("vae", VaeEncoder),
    }


def _unet(architecture: Architecture) -> type[Unet]:
    if architecture.family != "sdxl":
        return Unet
    return RefinerUnet if architecture.reads_aesthetic_score else SdxlUnet
