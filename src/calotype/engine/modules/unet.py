"""A UNet's forward pass over diffusers' weights, with what does not change from step to step done before.

The keys and values of a prompt do not depend on the timestep, nor what a timestep adds to the residual blocks
on the picture. Both come as rows made once: `prompt_rows` for each prompt, `shift_rows` for each timestep.
Knows nothing of samplers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from calotype.engine.compile.region import Region, Wrap, unwrapped
from calotype.engine.modules import resnet, transformer
from calotype.engine.modules.fused_linear import fuse_linears
from calotype.engine.modules.ops import DeferredSum, Operations, apply_conv, for_rows
from calotype.engine.modules.resnet import ResnetOfTensors
from calotype.engine.modules.transformer import Transformer
from calotype.models.skeleton.fallback import Skeleton

WHOLE = "unet"
"""The name of the region that is all of it."""
_BLOCKS = {
    "DownBlock2D",
    "CrossAttnDownBlock2D",
    "UNetMidBlock2DCrossAttn",
    "UpBlock2D",
    "CrossAttnUpBlock2D",
}


class Unet:
    """diffusers' UNet2DConditionModel as Stable Diffusion uses it."""

    def __init__(
        self,
        module: Any,
        operations: Operations,
        *,
        channels_last: bool = True,
        joined_qkv: bool = True,
        wrap: Wrap = unwrapped,
    ) -> None:
        """Check `reason_against` first. The module's weights are laid out anew, and some are joined.

        `wrap` says how its regions are run: residual blocks and the layers of transformers.
        """
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        module.to(memory_format=self._layout)
        self._module, self._do = module, operations
        blocks = (*module.down_blocks, module.mid_block, *module.up_blocks)
        names = {each: name for name, each in module.named_modules()}
        stages = [
            _Stage(block, operations, joined_qkv=joined_qkv, name=names[block], wrap=wrap) for block in blocks
        ]
        middle = len(module.down_blocks)
        self._down, self._mid, self._up = stages[:middle], stages[middle], stages[middle + 1 :]
        self._layers = [layer for stage in stages for t in stage.transformers for layer in t.layers]
        self._prompt_widths = [len(layer.prompt_kv) for layer in self._layers]
        resnets = [block for stage in stages for block in stage.blocks]
        self._shift_widths = [len(block.time_emb_proj.weight) for block in resnets]
        self._shift_weight, bias = fuse_linears([block.time_emb_proj for block in resnets])
        assert bias is not None
        # A convolution's bias is one more number for each channel: added here once, and never to a picture.
        self._shift_bias = bias + torch.cat([block.conv1.bias for block in resnets])

    @torch.inference_mode()
    def prompt_rows(self, context: Tensor) -> Tensor:
        """Keys and values of prompts for every layer: (prompts, tokens × widths)."""
        return torch.cat(
            [functional.linear(context, layer.prompt_kv).flatten(1) for layer in self._layers], 1
        )

    @torch.inference_mode()
    def shift_rows(self, timesteps: Tensor, added: dict[str, Tensor] | None = None) -> Tensor:
        """What timesteps add to the channels of every residual block: (timesteps, widths).

        `added` is what SDXL is told beside the prompt, a row for each timestep.
        """
        module = self._module
        embedding = module.time_embedding(module.time_proj(timesteps).to(self._shift_weight.dtype))
        if added is not None:
            sizes = module.add_time_proj(added["time_ids"].flatten()).unflatten(0, (len(timesteps), -1))
            both = torch.cat([added["text_embeds"], sizes.flatten(1)], dim=-1)
            embedding = embedding + module.add_embedding(both.to(embedding.dtype))
        return functional.linear(functional.silu(embedding), self._shift_weight, self._shift_bias)

    def __call__(self, sample: Tensor, shifts: Tensor, prompts: Tensor, mask: Tensor | None = None) -> Tensor:
        """The network's answer for rows of latents. `mask` is (rows, tokens), True for tokens that count.

        There may be fewer latents than prompts: then they start over with them, with the same shifts. What
        does not depend on prompts yet is computed once for each latent.
        """
        return self.with_deep(sample, shifts, prompts, mask)[0]

    def region(self) -> Region:
        """All of it; of prompts and their mask the tokens stay open."""
        return Region(WHOLE, self._module, self, open_sizes={2: 1, 3: 1})

    def with_deep(
        self, sample: Tensor, shifts: Tensor, prompts: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The answer, and the picture before the last step, which changes little from one noise level on."""
        do, given = self._do, self._given(shifts, prompts, mask)
        x = self._first(sample)
        # Whoever goes on from a picture puts it together, and it is kept then.
        skips: list[Tensor] = []
        for stage in self._down:
            for step in range(len(stage.blocks)):
                x, whole = stage.step(step, x, None, given)
                skips.append(whole)
            if stage.resize is not None:
                skips.append(x.materialize(do.add))
                x = apply_conv(do, skips[-1], stage.resize.conv)
        x, whole = self._mid.middle(x, given)
        skips.append(whole)
        for stage in self._up:
            last = stage is self._up[-1]
            for step in range(len(stage.blocks) - last):
                x, _ = stage.step(step, x, for_rows(skips.pop(), len(prompts)), given)
            if stage.resize is not None:
                height, width = skips[-1].shape[-2:]
                x = apply_conv(do, do.enlarged(x.materialize(do.add), (height, width)), stage.resize.conv)
        answer, both = self._last(x, for_rows(skips.pop(), len(prompts)), given)
        return answer, both[:, : x.x.shape[1]]

    def shallow(
        self, sample: Tensor, shifts: Tensor, prompts: Tensor, mask: Tensor | None, deep: Tensor
    ) -> Tensor:
        """The answer with the deep picture of an earlier evaluation: the first layer and the last step."""
        stage = self._up[-1]
        skipped = len(self._layers) - (len(stage.transformers[-1].layers) if stage.transformers else 0)
        given = self._given(shifts, prompts, mask)
        given.skip(len(self._shift_widths) - 1, skipped)
        skip = for_rows(self._first(sample).materialize(self._do.add), len(deep))
        return self._last(DeferredSum(deep), skip, given)[0]

    def _given(self, shifts: Tensor, prompts: Tensor, mask: Tensor | None) -> _Given:
        mask = None if mask is None else mask[:, None, None]
        return _Given(shifts.split(self._shift_widths, dim=1), self._per_layer(prompts), mask)

    def _first(self, sample: Tensor) -> DeferredSum:
        return apply_conv(self._do, sample.contiguous(memory_format=self._layout), self._module.conv_in)

    def _last(self, x: DeferredSum, skip: Tensor, given: _Given) -> tuple[Tensor, Tensor]:
        module, do, stage = self._module, self._do, self._up[-1]
        x, both = stage.step(len(stage.blocks) - 1, x, skip, given)
        normal, _ = do.group_norm(x, module.conv_norm_out, silu=True)
        return do.convolution(normal, module.conv_out, module.conv_out.bias), both

    def _per_layer(self, prompts: Tensor) -> Iterator[Tensor]:
        tokens = prompts.shape[1] // sum(self._prompt_widths)
        parts = prompts.split([tokens * width for width in self._prompt_widths], dim=1)
        return (part.unflatten(1, (tokens, -1)) for part in parts)


class _Given:
    """Rows handed out in the order the blocks ask for them."""

    def __init__(self, shifts: Sequence[Tensor], prompts: Iterator[Tensor], mask: Tensor | None) -> None:
        self.shifts, self._prompts, self.mask = iter(shifts), prompts, mask

    def prompts(self, count: int) -> list[Tensor]:
        return [next(self._prompts) for _ in range(count)]

    def skip(self, shifts: int, prompts: int) -> None:
        """Go past what blocks that are left out would have asked for."""
        for _ in range(shifts):
            next(self.shifts)
        self.prompts(prompts)


class _Stage:
    """The residual blocks and transformers at one size."""

    def __init__(
        self, block: Any, operations: Operations, *, joined_qkv: bool, name: str, wrap: Wrap
    ) -> None:
        self.blocks = list(block.resnets)
        self._resnets = [
            wrap(Region(f"{name}.resnets.{place}", each, ResnetOfTensors(each, operations)))
            for place, each in enumerate(self.blocks)
        ]
        lookers = getattr(block, "attentions", None) or []
        self.transformers = [
            Transformer(each, operations, joined_qkv=joined_qkv, name=f"{name}.attentions.{place}", wrap=wrap)
            for place, each in enumerate(lookers)
        ]
        resizers = getattr(block, "downsamplers", None) or getattr(block, "upsamplers", None)
        self.resize: Any = resizers[0] if resizers else None

    def step(
        self, index: int, x: DeferredSum, skip: Tensor | None, given: _Given
    ) -> tuple[DeferredSum, Tensor]:
        """What comes out, and what came in, put together."""
        x, whole = self._resnet(index, x, skip, given)
        return self._looked(index, x, given) if self.transformers else x, whole

    def middle(self, x: DeferredSum, given: _Given) -> tuple[DeferredSum, Tensor]:
        """The middle block begins with a residual block of its own."""
        x, whole = self._resnet(0, x, None, given)
        for index in range(1, len(self.blocks)):
            x, _ = self._resnet(index, self._looked(index - 1, x, given), None, given)
        return x, whole

    def _resnet(
        self, index: int, x: DeferredSum, skip: Tensor | None, given: _Given
    ) -> tuple[DeferredSum, Tensor]:
        shift = next(given.shifts)[: len(x.x)]
        *parts, whole = self._resnets[index](x.x, x.addend, x.bias, skip, shift)
        return DeferredSum(*parts), whole

    def _looked(self, index: int, x: DeferredSum, given: _Given) -> DeferredSum:
        looker = self.transformers[index]
        return looker(x, given.prompts(len(looker.layers)), given.mask)


def reason_against(module: Any) -> str | None:
    """Why this UNet cannot be run here, in words; None if it can."""
    if isinstance(module, Skeleton):
        return None  # of other kinds there is no outline
    config = module.config
    for block in (*module.down_blocks, module.mid_block, *module.up_blocks):
        if type(block).__name__ not in _BLOCKS:
            return f"its UNet has a block of the kind {type(block).__name__}"
        for found in (
            *(resnet.reason_against(each) for each in block.resnets),
            *(transformer.reason_against(each) for each in getattr(block, "attentions", None) or []),
        ):
            if found:
                return f"in its UNet {found}"
    unusual = {
        "center_input_sample": config.center_input_sample,
        "class embeddings": module.class_embedding is not None,
        "an activation after the time embedding": module.time_embed_act is not None,
        "a projection of the prompt": module.encoder_hid_proj is not None,
        "an addition embedding": config.addition_embed_type not in (None, "text_time"),
        "an activation other than SiLU": not isinstance(module.conv_act, nn.SiLU),
    }
    return next((f"its UNet has {name}" for name, there in unusual.items() if there), None)
